"""The as-of join gives DuckDB's answer over all on-time rows, however they are cut into epochs, subtasks and pieces."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.operators.asof.run import AsofJoinByKey
from milepost.operators.contract import OperatorInput
from milepost_testkit import profiles, wording
from milepost_testkit.rows.key_hashes import KEYED, WEAK
from milepost_testkit.tasks.operators.two_inputs import TwoInputRun

READINGS = pa.schema([("device", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("value", pa.float64())])
DEVICES = pa.schema(
    [("id", pa.int64()), ("since", pa.timestamp("ms", "UTC")), ("room", pa.string()), ("x", pa.float64())]
)
SCHEMAS = READINGS, DEVICES


def at(minute: float) -> datetime:
    return datetime(1969, 12, 31, 23, 55, tzinfo=UTC) + timedelta(minutes=minute)


def us(minute: float) -> int:
    return int(at(minute).timestamp() * 1_000_000)


def asof(how: str = "left", shift_us: int = 0, **options: Any) -> AsofJoinByKey:
    inputs = [OperatorInput(READINGS, "at", shift_us), OperatorInput(DEVICES, "since")]
    return AsofJoinByKey("placed", options.get("keys", [("device", "id")]), how, inputs, options.get("renamed", {}))


def readings(*rows: tuple[Any, ...]) -> tuple[int, pa.Table]:
    return 0, pa.table(list(zip(*rows, strict=True)) if rows else [[] for _ in READINGS], schema=READINGS)


def devices(*rows: tuple[Any, ...]) -> tuple[int, pa.Table]:
    return 1, pa.table(list(zip(*rows, strict=True)) if rows else [[] for _ in DEVICES], schema=DEVICES)


keys, minutes = st.sampled_from([1, None, 2]), st.integers(0, 8)
left_rows = st.builds(lambda key, minute, v: (key, at(minute), v), keys, minutes, st.sampled_from([None, 1.0]))
right_rows = st.builds(
    lambda key, minute, room, x: (key, at(minute), room, x),
    keys, minutes, st.sampled_from([None, "a", "b"]), st.sampled_from([None, 0.0, -0.0, float("nan"), 1.0]),
)  # fmt: skip
pieces = st.lists(
    st.one_of(
        st.lists(left_rows, max_size=6).map(lambda rows: readings(*rows)),
        st.lists(right_rows, max_size=6).map(lambda rows: devices(*rows)),
    ),
    max_size=4,
)
histories = st.lists(st.tuples(pieces, st.sampled_from([1, 2, 3]), st.integers(0, 6)), min_size=1, max_size=6)

EXPECTED = """
SELECT l.device, l."at", l.value, r.since, r.room, r.x FROM l {how} JOIN r ON r.id = l.device AND r.since <= l."at"
WHERE l.device IS NULL OR epoch_us(l."at") < {fired}
QUALIFY row_number() OVER (PARTITION BY l.number ORDER BY r.since DESC NULLS LAST, r.room DESC NULLS LAST,
    r.x DESC NULLS LAST, CASE WHEN r.x::VARCHAR = '-0.0' THEN 1 ELSE 0 END) = 1
"""


@pytest.mark.deep
@profiles.examples(share=0.4, phases=[Phase.explicit, Phase.generate])
@given(history=histories, how=st.sampled_from(["inner", "left"]), weak=st.booleans())
def test_rows_are_those_of_duckdb_whatever_the_cut(
    tmp_path_factory: pytest.TempPathFactory, history: Any, how: str, weak: bool
) -> None:
    """Over epochs, rescales and collisions; and of versions there stays what a row may still need."""
    operator = asof(how)
    run = TwoInputRun(operator, tmp_path_factory.mktemp("asof"), WEAK if weak else KEYED)
    found, seen, late = run.follow(history, us, (readings()[1], devices()[1]))
    connection = duckdb.cursor()
    connection.execute("SET TimeZone='UTC'")
    for name, signed, all_, refused in zip("lr", ("value", "x"), seen, late, strict=True):
        connection.register(f"{name}_all", pa.concat_tables(all_))
        connection.register(f"{name}_late", pa.concat_tables(refused))
        of = f"SELECT *, {signed}::VARCHAR AS signed FROM {name}"  # by itself EXCEPT takes 0.0 for -0.0
        on_time = f"{of}_all EXCEPT ALL {of}_late"
        connection.execute(f"CREATE TEMP TABLE {name} AS SELECT *, row_number() OVER () AS number FROM ({on_time})")
    query = EXPECTED.format(how="LEFT" if how == "left" else "INNER", fired=run.firing_us)
    expected = connection.sql(query).to_arrow_table().cast(operator.output_schema)
    assert Counter(map(repr, pa.concat_tables(found).to_pylist())) == Counter(map(repr, expected.to_pylist()))
    waiting = f'SELECT * FROM l WHERE device IS NOT NULL AND epoch_us("at") >= {run.firing_us}'
    assert sum(run.restore("left").rows()["__weight"].to_pylist()) == connection.sql(waiting).to_arrow_table().num_rows
    needed = f"""SELECT DISTINCT id, since FROM (SELECT *, lead(since) OVER (PARTITION BY id ORDER BY since) AS next
        FROM (SELECT DISTINCT id, since FROM r WHERE id IS NOT NULL))
        WHERE next IS NULL OR epoch_us(next) > {run.firing_us}"""
    kept = run.restore("right").rows().select(["id", "since"]).to_pylist()
    assert sorted(map(repr, kept)) == sorted(map(repr, connection.sql(needed).to_arrow_table().to_pylist()))


def test_a_row_waits_until_no_version_can_come_that_it_would_get(tmp_path: Path) -> None:
    """Its own moment included: with the watermark at its time such a version is still on time."""
    run = TwoInputRun(asof(), tmp_path)
    out, _ = run.epoch([readings((1, at(5), 1.0)), devices((1, at(0), "a", 0.0))], None, us(5))
    assert not out.num_rows
    out, _ = run.epoch([devices((1, at(5), "b", 0.0))], us(5), us(5) + 1)
    assert out["room"].to_pylist() == ["b"]


def test_of_two_versions_of_one_time_the_greatest_holds_in_whatever_order_they_come(tmp_path: Path) -> None:
    for number, rooms in enumerate((("a", "b"), ("b", "a"))):
        run = TwoInputRun(asof(), tmp_path / str(number))
        run.epoch([devices((1, at(0), rooms[0], 0.0))], None, None)
        run.epoch([devices((1, at(0), rooms[1], 0.0))], None, None)
        out, _ = run.epoch([readings((1, at(1), 1.0))], None, us(2))
        assert out["room"].to_pylist() == ["b"] and run.restore("right").rows().num_rows == 1


def test_versions_are_dropped_when_no_row_can_need_them(tmp_path: Path) -> None:
    """The newest version of a key stays; an older one stays until the watermark reaches the next one's time."""
    run = TwoInputRun(asof(), tmp_path)
    run.epoch([devices((1, at(0), "a", 0.0), (1, at(4), "c", 0.0), (2, at(0), "z", 0.0))], None, us(0))
    run.epoch([devices((1, at(2), "b", 0.0))], us(0), us(1))
    assert sorted(run.restore("right").rows()["room"].to_pylist()) == ["a", "b", "c", "z"]
    run.epoch([], us(1), us(2))
    assert sorted(run.restore("right").rows()["room"].to_pylist()) == ["b", "c", "z"]
    run.epoch([], us(2), us(1_000))
    assert sorted(run.restore("right").rows()["room"].to_pylist()) == ["c", "z"]


def test_the_end_of_a_window_gets_the_version_of_its_last_moment(tmp_path: Path) -> None:
    """The end itself is the first moment that is not in it."""
    run = TwoInputRun(asof(shift_us=-1), tmp_path)
    out, _ = run.epoch(
        [readings((1, at(5), 1.0)), devices((1, at(3), "z", 0.0), (1, at(4), "a", 0.0), (1, at(5), "b", 0.0))],
        None,
        us(5),
    )
    assert out["room"].to_pylist() == ["a"]


def test_late_rows_of_either_side_are_emitted_and_change_nothing(tmp_path: Path) -> None:
    run = TwoInputRun(asof(), tmp_path)
    run.epoch([readings((1, at(5), 1.0)), devices((1, at(0), "a", 0.0))], None, us(3))
    out, late = run.epoch([readings((1, at(2), 2.0)), devices((1, at(2), "b", 0.0))], us(3), us(6))
    assert [pa.concat_tables(rows).num_rows for rows in late] == [1, 1]
    assert out["room"].to_pylist() == ["a"]


@pytest.mark.parametrize(
    "options",
    [
        {"keys": [("device", "room")]},
        {"keys": [("nothing", "id")]},
        {"renamed": {"value": "room"}},
        {"renamed": {"place": "id"}},
    ],
)
def test_what_cannot_run_is_refused_when_it_is_built(options: dict[str, Any]) -> None:
    with wording.raises(InvalidRequest):
        asof(**options)
