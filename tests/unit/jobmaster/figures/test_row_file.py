"""A figures object that Milepost did not write is refused by name, also if it grows when it is decoded."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import StateCorrupt
from milepost.jobmaster.figures import row_file
from milepost.jobmaster.figures.row import day_of
from milepost.jobmaster.figures.row_file import SCHEMA, decode_rows, encode_rows, table_of, union

ROW = {"checkpoint_id": 1, "timeline": "main", "token": 2, "status": "completed", "version": 3, "parent": 0}
KEY = "figures/2026-11-30/x.parquet"


def test_rows_are_read_as_they_were_written() -> None:
    hostile = {"<b>'; DROP TABLE": {"rows": 1, "rules": None}, "": {"rows": 2}, "é\n": {}}
    rows = [
        {**ROW, "phases": [("plan_ms", 5)], "sinks": [*hostile.items()], "watermark": -(10**15)},
        {**ROW, "token": 4},
    ]
    table = table_of(rows)
    assert decode_rows(encode_rows(table), KEY).equals(table)
    with pytest.raises(StateCorrupt, match="1 record an invalid figure"):
        table_of([{**ROW, "rows_in": "many"}])


COUNTS = st.none() | st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
TIMES = st.none() | st.integers(0, 2**40)
ANY_ROW = st.fixed_dictionaries(
    {},
    optional={
        "rows_in": COUNTS,
        "timeline": st.none() | NAMES,
        "refused_by": st.none() | st.lists(NAMES),
        "end_time": TIMES,
        "watermark": st.none() | st.integers(-(2**50), 2**50),
        "phases": st.none() | st.lists(st.tuples(NAMES, COUNTS)),
        "requests": st.none() | st.fixed_dictionaries({}, optional={"puts": COUNTS, "waited_ms": COUNTS}),
        "sources": st.lists(
            st.tuples(NAMES, st.none() | st.fixed_dictionaries({}, optional={"rows": COUNTS, "newest_event": TIMES}))
        ),
    },
)


@given(st.lists(ANY_ROW, max_size=4))
def test_rows_are_the_table_that_arrow_makes(rows: list[dict[str, Any]]) -> None:
    table = table_of(rows)
    table.validate(full=True)
    assert table.equals(pa.Table.from_pylist(rows, schema=SCHEMA))


@pytest.mark.parametrize(
    "wrong",
    [{"rows_in": 2**63}, {"rows_in": 1.5}, {"rows_in": True}, {"timeline": 7}, {"sinks": [("a", {"rows": "x"})]}],
    ids=str,
)
def test_a_figure_of_another_type_is_an_error_that_names_its_checkpoint(wrong: dict[str, Any]) -> None:
    with pytest.raises(StateCorrupt, match="checkpoints 1 record an invalid figure"):
        table_of([{**ROW, **wrong}])


def test_a_column_that_an_older_object_lacks_is_null_and_one_of_a_later_version_stays() -> None:
    older = table_of([ROW]).drop_columns(["sinks", "lag_ms"])
    later = table_of([{**ROW, "token": 9}]).append_column("mood", pa.array(["good"]))
    joined = union([decode_rows(encode_rows(one), KEY) for one in (older, later)])
    assert joined.column("sinks").to_pylist() == [None, None]
    assert decode_rows(encode_rows(joined), KEY).column("mood").to_pylist() == [None, "good"]


def test_columns_of_others_that_contradict_each_other_are_dropped() -> None:
    tables = [
        table_of([{**ROW, "token": number}]).append_column("mood", pa.array([mood]))
        for number, mood in ((1, 1), (2, "b"))
    ]
    joined = union(tables)
    assert joined.schema == SCHEMA and joined.column("token").to_pylist() == [1, 2]


def twice() -> bytes:
    table = table_of([ROW])
    return parquet(table.append_column("rows_in", table.column("rows_out")), format=row_file.FORMAT)


def parquet(table: pa.Table, **tags: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, compression="zstd") as file:
        file.write_table(table)
        file.add_key_value_metadata(tags)
    return bytes(sink.getvalue())


def other(name: str, values: list[Any]) -> Callable[[], bytes]:
    def body() -> bytes:
        table = table_of([ROW])
        changed = table.set_column(table.column_names.index(name), name, pa.array(values))
        return parquet(changed, format=row_file.FORMAT)

    return body


def growing() -> bytes:
    text = "x" * (1 << 20)
    return encode_rows(table_of([{**ROW, "run_id": text, "token": number} for number in range(100)]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (lambda: b"", "cannot be read"),
        (lambda: b"PAR1PAR1", "cannot be read"),
        (lambda: encode_rows(table_of([ROW]))[:-1], "cannot be read"),
        (lambda: encode_rows(table_of([ROW])).replace(b"main", b"ma\xffn"), "cannot be read"),
        (lambda: parquet(table_of([ROW])), "its format is ''"),
        (lambda: parquet(table_of([ROW]), format="milepost.figures/2"), "its format is 'milepost.figures/2'"),
        (other("rows_in", ["1"]), "column 'rows_in' is string"),
        (other("timeline", [None]), "column 'timeline'"),
        (other("version", pa.array([None], pa.int64()).to_pylist()), "column 'version'"),
        (growing, "more than"),
        (twice, "cannot be read"),
    ],
)
def test_an_object_that_is_not_ours_is_refused_by_name(
    body: Callable[[], bytes], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_file, "MAX_ROWS_BYTES", 50 << 20)
    with pytest.raises(StateCorrupt) as refused:
        decode_rows(body(), KEY)
    assert problem in refused.value.message and KEY in refused.value.message


@pytest.mark.deep
def test_a_day_of_a_busy_job_has_less_than_a_megabyte() -> None:
    """The size that the decision record states: 1,440 epochs of ten operators and three sinks, all figures random."""
    of = random.Random(1).randrange
    names = {"sources": 2, "operators": 10, "sinks": 3}

    def figures(column: str) -> list[tuple[str, dict[str, int]]]:
        fields = [field.name for field in SCHEMA.field(column).type.item_type]
        return [(f"{column}_{at}", {field: of(1_000_000) for field in fields}) for at in range(names[column])]

    numbers = [field.name for field in SCHEMA if field.type == pa.int64()]
    rows = [
        {
            **{name: of(1_000_000) for name in numbers},
            **ROW,
            "checkpoint_id": number,
            "trigger_time": 1_700_000_000_000 + number * 60_000,
            "phases": [(f"phase{at}_ms", of(3_000)) for at in range(19)],
            **{column: figures(column) for column in names},
        }
        for number in range(1_440)
    ]
    assert 300_000 < len(encode_rows(table_of(rows))) < 1_000_000


@pytest.mark.parametrize("ms", [0, 86_399_999, 86_400_000, 1_700_000_000_123, 4_102_444_799_999])
def test_a_day_is_that_of_the_completion_in_utc(ms: int) -> None:
    with duckdb.cursor() as db:
        assert db.sql(f"SELECT strftime(epoch_ms({ms}::BIGINT), '%Y-%m-%d')").fetchall() == [(day_of(ms),)]
