"""A table that is not the answer is refused, whatever is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.workloads.equality import Answer, WrongResult, changed_keys
from bench.workloads.generate import SCHEMA, START_US, auctions, bids, write_epoch
from bench.workloads.shapes import Shape
from bench.workloads.workloads import WORKLOADS, Workload

SHAPE = Shape(keys=50, rows=400, files=2)
KEYED = replace(WORKLOADS["keyed-1m"], shape=SHAPE)


@pytest.fixture(scope="module")
def epochs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("input")
    paths = [folder / f"epoch-{number}" for number in range(3)]
    for number, path in enumerate(paths):
        write_epoch(SHAPE, number, path)
    return paths


def totals() -> pa.Table:
    """Count, sum and maximum by plain Python."""
    found: dict[int, list[int]] = {}
    for epoch in range(3):
        for row in bids(SHAPE, epoch).to_pylist():
            one = found.setdefault(row["auction"], [0, 0, 0])
            found[row["auction"]] = [one[0] + 1, one[1] + row["price"], max(one[2], row["price"])]
    columns = list(zip(*((key, *values) for key, values in found.items()), strict=True))
    return pa.table([pa.array(column, pa.int64()) for column in columns], names=["auction", "bids", "total", "highest"])


def published(table: pa.Table, folder: Path) -> str:
    pq.write_table(table, folder / "published.parquet")
    return f"SELECT * FROM read_parquet('{folder}/published.parquet')"


def test_the_answer_is_what_plain_python_computes(epochs: list[Path], tmp_path: Path) -> None:
    answer = Answer(KEYED, epochs)
    answer.check("ours", published(totals(), tmp_path))
    assert answer.rows == SHAPE.keys


def one_row_less(table: pa.Table) -> pa.Table:
    return table.slice(1)


def one_row_twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(0, 1)])


def one_value_off(table: pa.Table) -> pa.Table:
    changed = table["total"].to_pylist()
    changed[-1] += 1
    return table.set_column(2, "total", pa.array(changed, pa.int64()))


def nothing(table: pa.Table) -> pa.Table:
    return table.slice(0, 0)


@pytest.mark.deep
@pytest.mark.parametrize("damage", [one_row_less, one_row_twice, one_value_off, nothing])
def test_a_wrong_table_is_refused_with_an_example(damage: object, epochs: list[Path], tmp_path: Path) -> None:
    wrong = damage(totals())  # type: ignore[operator]
    with pytest.raises(WrongResult, match=r"theirs, workload keyed-1m: expected 50 rows.*No time .* is reported"):
        Answer(KEYED, epochs).check("theirs", published(wrong, tmp_path))


def test_only_windows_that_the_watermark_has_passed_are_expected(tmp_path: Path) -> None:
    """10 s windows, 5 s delay: a row at 25.0 s closes [0, 10) and [10, 20), not [20, 30)."""
    workload = replace(WORKLOADS["window"], shape=SHAPE)
    rows = [(0.0, 3), (9.9, 4), (10.0, 5), (25.0, 6)]
    epoch = tmp_path / "epoch"
    epoch.mkdir()
    write_rows(workload, rows, epoch / "bids.parquet")
    second = 1_000_000
    expected = [
        (7, START_US, START_US + 10 * second, 2, 7, 4),
        (7, START_US + 10 * second, START_US + 20 * second, 1, 5, 5),
    ]
    with duckdb.connect() as connection:
        answer = workload.answer_sql(f"read_parquet('{epoch}/*')")
        found = connection.sql(f"{answer} ORDER BY window_start").fetchall()
    assert found == expected


def test_a_lookup_returns_the_row_of_the_static_table(epochs: list[Path]) -> None:
    """The answer computes what each system reads from that table."""
    workload = replace(WORKLOADS["lookup"], shape=SHAPE)
    with duckdb.connect() as connection:
        connection.register("auctions", auctions(SHAPE))
        rows = f"read_parquet({[f'{epoch}/*' for epoch in epochs]})"
        joined = f"SELECT {', '.join(workload.result_columns)} FROM {rows} JOIN auctions USING (auction)"
        found = connection.sql(f"({joined}) EXCEPT ALL ({workload.answer_sql(rows)})").fetchall()
        assert found == [] and connection.sql(f"SELECT count(*) FROM ({joined})").fetchall() == [(850,)]


def test_an_answer_with_windows_accepts_times_of_any_type(tmp_path: Path) -> None:
    workload = replace(WORKLOADS["window"], shape=SHAPE)
    (tmp_path / "epoch").mkdir()
    write_rows(workload, [(0.0, 3), (25.0, 6)], tmp_path / "epoch" / "bids.parquet")
    borders = pa.array([START_US], pa.timestamp("us")), pa.array([START_US + 10_000_000], pa.timestamp("us"))
    values = [pa.array([value], pa.int64()) for value in (1, 3, 3)]
    for cast in (pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("us", "UTC")):
        columns = [pa.array([7], pa.int64()), *(border.cast(cast) for border in borders), *values]
        table = pa.table(columns, names=list(workload.result_columns))
        Answer(workload, [tmp_path / "epoch"]).check("ours", published(table, tmp_path))


def test_changed_keys_are_those_of_an_epoch_and_new_ones_where_rows_are_deduplicated(epochs: list[Path]) -> None:
    drawn = [len(set(bids(SHAPE, epoch)["auction"].to_pylist())) for epoch in range(3)]
    assert changed_keys(KEYED, epochs) == drawn
    assert changed_keys(replace(WORKLOADS["deduplicate"], shape=SHAPE), epochs) == [SHAPE.keys, 0, 0]


def write_rows(workload: Workload, rows: list[tuple[float, int]], file: Path) -> None:
    """Bids of auction 7. Args: rows: seconds after the start, and price."""
    table = pa.Table.from_pylist(
        [{"auction": 7, "price": price, "event_time": START_US + round(at * 1e6)} for at, price in rows],
        pa.schema([("auction", pa.int64()), ("price", pa.int64()), ("event_time", pa.int64())]),
    )
    time = table["event_time"].cast(SCHEMA.field("event_time").type)
    pq.write_table(table.set_column(2, "event_time", time), file)
    assert set(workload.columns) == set(table.column_names)
