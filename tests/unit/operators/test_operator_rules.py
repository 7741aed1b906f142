"""The rules of single operators: what is refused, late, fired, emitted again, remembered."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.language.aggregates import parse_aggregate
from milepost.operators.aggregate.spec import AggregateOperator
from milepost.operators.aggregation.exact_sums import exact_sums_as_decimal, stored_sums
from milepost.operators.build import build_operator
from milepost.operators.contract import OperatorFailed, OperatorInput, OutputKind, StatefulOperator
from milepost.operators.deduplicate.spec import DeduplicateOperator
from milepost.operators.window.spec import WindowOperator
from milepost.operators.window.tumbling import TumblingWindowByKey
from milepost.operators.window.window_bounds import FixedWindows
from milepost.operators.window.windowed import Emission
from milepost.protocol.records.object_store import StoreConfig
from milepost.state.runs.evolution import compare_schemas
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles, wording
from milepost_testkit.tasks.operators.subtasks import OperatorRun
from milepost_testkit.tasks.operators.timers import next_timer

SCHEMA = pa.schema([("k", pa.string()), ("x", pa.int64()), ("t", pa.timestamp("us", tz="UTC"))])
MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
END_OF_TIME = 2**63 - 1


@pytest.fixture
def started(tmp_path: Path) -> Callable[[StatefulOperator], OperatorRun]:
    return lambda operator: OperatorRun(operator, LocalStore(StoreConfig(f"file://{tmp_path}/store")))


def aggregate(calls: dict[str, str], key: Sequence[str] = ("k",)) -> AggregateOperator:
    return AggregateOperator(uid="agg", kind="aggregate", inputs=["in"], key=list(key), aggregates=calls)


def window(key: Sequence[str] = ("k",), calls: dict[str, str] | None = None) -> WindowOperator:
    return WindowOperator(
        uid="win",
        kind="window",
        inputs=["in"],
        key=list(key),
        window={"tumbling": "1h"},
        aggregates=calls or {"n": "count(*)"},
    )


def deduplicate(ttl: str | None = None, key: Sequence[str] = ("k",)) -> DeduplicateOperator:
    return DeduplicateOperator(uid="dd", kind="deduplicate", inputs=["in"], key=list(key), ttl=ttl)


def rows(*values: tuple[str | None, int | None, int | None]) -> pa.Table:
    """Rows of (key, x, minute since the epoch)."""
    minutes = [None if minute is None else minute * MINUTE_US for _, _, minute in values]
    return pa.table(
        [
            [k for k, _, _ in values],
            [x for _, x, _ in values],
            pa.array(minutes, pa.int64()).cast(SCHEMA.field("t").type),
        ],
        schema=SCHEMA,
    )


def windows(table: pa.Table) -> list[tuple[Any, ...]]:
    """(key, window start in minutes, n) per emitted row."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return [(r["k"], (r["window_start"] - epoch) // timedelta(minutes=1), r["n"]) for r in table.to_pylist()]


@pytest.mark.parametrize(
    ("spec", "event_time"),
    [
        (aggregate({"n": "count(*)"}, ["nope"]), None),
        (aggregate({"n": "sum(nope)"}), None),
        (aggregate({"n": "sum(k)"}), None),
        (aggregate({"n": "avg(t)"}), None),
        (window(), None),
        (aggregate({"k": "count(*)"}), None),
        (window(calls={"window_end": "count(*)"}), "t"),
        (window(["k"]), "x"),
        (deduplicate("1h"), None),
    ],
)
def test_an_operator_that_cannot_run_is_refused_at_build(spec: Any, event_time: str | None) -> None:
    """Bad input is reported before planning, by uid, column and type."""
    with wording.raises(InvalidRequest) as caught:
        build_operator(spec, [OperatorInput(SCHEMA, event_time)])
    assert repr(spec.uid) in caught.value.message


def test_a_nested_key_is_refused_at_build() -> None:
    """A list has no place in a key."""
    with wording.raises(InvalidRequest):
        build_operator(deduplicate(key=["l"]), [OperatorInput(pa.schema([("l", pa.list_(pa.int64()))]), None)])


def test_result_types_are_those_of_the_spec() -> None:
    """DESIGN 8.1: lint shows the columns that the operator emits."""
    schema = pa.schema(
        [("k", pa.string()), ("i", pa.int8()), ("f", pa.float32()), ("d", pa.decimal128(9, 2)), ("day", pa.date32())]
    )
    calls = {
        "n": "count(f)", "si": "sum(i)", "sf": "sum(f)", "sd": "sum(d)", "a": "avg(d)",
        "lo": "min(f)", "hi": "max(day)",
    }  # fmt: skip
    operator = build_operator(aggregate(calls), [OperatorInput(schema, None)])
    types = {field.name: str(field.type) for field in operator.output_schema}
    assert types == {
        "k": "string", "n": "int64", "si": "int64", "sf": "double", "sd": "decimal128(38, 2)", "a": "double",
        "lo": "float", "hi": "date32[day]",
    }  # fmt: skip
    assert operator.output_kind is OutputKind.UPDATES and operator.output_key == ("k",)


def test_an_integer_sum_beyond_int64_fails_the_operator_and_a_sum_that_returns_does_not(started: Any) -> None:
    """ANSI mode: overflow is an error, never a wrapped number; sums are exact in between, whatever the order."""
    run = started(build_operator(aggregate({"s": "sum(x)", "a": "avg(x)"}), [OperatorInput(SCHEMA, None)]))
    largest = 2**63 - 1
    for folded in ((), (True, True)):
        given = rows(("a", largest, 0), ("a", largest, 0), ("a", -largest, 0), ("b", -largest - 1, 0))
        out = started(run.operator).epoch(given, cuts=[2], folded=folded)
        assert sorted(out.rows.column("s").to_pylist()) == [-largest - 1, largest]
    run.epoch(given)
    with wording.raises(OperatorFailed):
        run.epoch(rows(("a", 1, 0)))
    average = started(build_operator(aggregate({"a": "avg(x)"}), [OperatorInput(SCHEMA, None)]))
    assert average.epoch(rows(("a", largest, 0), ("a", largest, 0))).rows.column("a").to_pylist() == [2.0**63]


def test_a_decimal_sum_beyond_38_digits_fails_the_operator(started: Any) -> None:
    """Exact to the last digit below the limit, an error above it, also where 128 bits overflow."""
    schema = pa.schema([("k", pa.string()), ("d", pa.decimal128(38, 0))])
    largest, smallest = Decimal(10**38 - 1), Decimal(1 - 10**38)

    def of(*values: Decimal) -> pa.Table:
        return pa.table([["a"] * len(values), pa.array(values, schema.field("d").type)], schema=schema)

    run = started(build_operator(aggregate({"s": "sum(d)"}), [OperatorInput(schema, None)]))
    assert run.epoch(of(largest, smallest, smallest, Decimal(7))).rows.column("s").to_pylist() == [Decimal(8 - 10**38)]
    for too_many, folded in itertools.product((2, 3, 9), ((), (True, True), (False, True))):
        with wording.raises(OperatorFailed):
            run.epoch(of(*[smallest] * too_many), cuts=[1], folded=folded)
    average = started(build_operator(aggregate({"a": "avg(d)"}), [OperatorInput(schema, None)]))
    with wording.raises(OperatorFailed):
        average.epoch(of(*[largest] * 9))


DECIMALS = pa.schema([("k", pa.string()), ("d", pa.decimal128(38, 0)), ("t", SCHEMA.field("t").type)])


@profiles.examples(share=0.4)
@given(
    values=st.lists(st.integers(-9, 9).map(lambda part: part * (10**37) + part), min_size=1, max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    folded=st.lists(st.booleans(), max_size=5),
    epochs=st.integers(1, 3),
)
@example([9 * 10**37 + 9] * 5 + [-9 * 10**37 - 9] * 5, [5], [True], 2)
def test_a_decimal_sum_is_judged_by_its_value_however_its_rows_were_cut(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], cuts: list[int], folded: list[bool], epochs: int
) -> None:
    """It may leave 38 digits, and 128 bits, and come back: in a buffer, a partial result, or between epochs."""
    store = LocalStore(StoreConfig(f"file://{tmp_path_factory.mktemp('sums')}"))
    given = pa.table([["a"] * len(values), [Decimal(one) for one in values], [0] * len(values)], schema=DECIMALS)
    run = OperatorRun(build_operator(window(calls={"s": "sum(d)"}), [OperatorInput(DECIMALS, "t")]), store)
    length = -(-len(values) // epochs)
    parts = [given.slice(start, length) for start in range(0, len(values), length)]
    for part in parts[:-1]:
        run.epoch(part, cuts=sorted(cuts))
    expected = sum(values)
    if abs(expected) < 10**38:
        out = run.epoch(parts[-1], None, HOUR_US, cuts=sorted(cuts))
        assert out.rows.column("s").to_pylist() == [Decimal(expected)]
    else:
        with pytest.raises(OperatorFailed, match=r"sum\(d\)"):
            run.epoch(parts[-1], None, HOUR_US, cuts=sorted(cuts))
    whole = OperatorRun(build_operator(aggregate({"s": "sum(d)"}), [OperatorInput(DECIMALS, None)]), store)
    if abs(expected) < 10**38:
        out = whole.epoch(given, cuts=sorted(cuts), folded=folded)
        assert out.rows.column("s").to_pylist() == [Decimal(expected)]
    else:
        with pytest.raises(OperatorFailed, match=r"sum\(d\)"):
            whole.epoch(given, cuts=sorted(cuts), folded=folded)


def test_sums_that_were_stored_in_128_bits_go_on(started: Any) -> None:
    """State of before had no third part: it begins null, and is the sign. What had overflowed then still has."""
    operator = build_operator(aggregate({"s": "sum(d)"}), [OperatorInput(DECIMALS, None)])
    older = pa.schema([field for field in operator.state_schema if field.name != "sum(d).top"])
    change = compare_schemas(older, operator.state_schema, ("k",))
    assert (change.added, change.problems) == (("sum(d).top",), ())

    def stored(*highs: int) -> pa.Table:
        parts = {"sum(d).low": [-5] * len(highs), "sum(d).high": highs, "sum(d).top": [None] * len(highs)}
        return pa.table({name: pa.array(part, pa.int64()) for name, part in parts.items()})

    before = stored_sums(stored(-1, 5 * 10**18, 2**63 - 1), "sum(d)")
    sums, too_large = exact_sums_as_decimal(before.plus(before), pa.decimal128(38, 0))
    assert too_large.tolist() == [False, True, True] and sums[0].as_py() == Decimal(-10)
    assert exact_sums_as_decimal(before, pa.decimal128(38, 0))[1].tolist() == [False, False, True]


INT64 = 2**63


@pytest.mark.parametrize("time", [-INT64, -INT64 + 1, INT64 - 2, INT64 - 1])
def test_a_window_without_bounds_fails_the_operator_by_name(started: Any, time: int) -> None:
    """At the ends of int64 a bound would wrap: the row would be late, or in a window of another age."""
    run = started(build_operator(window(), [OperatorInput(SCHEMA, "t")]))
    given = pa.table([["a"], [1], pa.array([time]).cast(SCHEMA.field("t").type)], schema=SCHEMA)
    with wording.raises(OperatorFailed) as refused:
        run.epoch(given, None, 0)
    assert str(time) in str(refused.value)
    late = started(run.operator).epoch(given, INT64 - 2, INT64 - 2).late if time < 0 else None
    assert late is None or late.num_rows == 1, "what is late needs no window"


@pytest.mark.parametrize("time", [-INT64 + 2 * HOUR_US, INT64 - 3 * HOUR_US])
def test_the_outermost_windows_with_bounds_fire(started: Any, time: int) -> None:
    run = started(build_operator(window(), [OperatorInput(SCHEMA, "t")]))
    given = pa.table([["a"], [1], pa.array([time]).cast(SCHEMA.field("t").type)], schema=SCHEMA)
    out = run.epoch(given, None, INT64 - 2).rows
    start, end = (out.column(name).cast(pa.int64())[0].as_py() for name in ("window_start", "window_end"))
    assert start <= time < end == start + HOUR_US


@pytest.mark.parametrize("time", [-INT64, INT64 - 1])
def test_a_key_whose_ttl_ends_beyond_the_end_of_time_is_remembered_until_then(started: Any, time: int) -> None:
    run = started(build_operator(deduplicate("1h"), [OperatorInput(SCHEMA, "t")]))
    given = pa.table([["a"], [1], pa.array([time]).cast(SCHEMA.field("t").type)], schema=SCHEMA)
    assert run.epoch(given, None, None).rows.num_rows == 1
    again = run.epoch(given, INT64 - 2, INT64 - 2)
    assert (again.rows.num_rows, again.late.num_rows) == (0, int(time < 0))


def test_a_row_without_event_time_fails_the_operator(started: Any) -> None:
    """A null time has no window: typed, so that the subtask declines."""
    run = started(build_operator(window(), [OperatorInput(SCHEMA, "t")]))
    with wording.raises(OperatorFailed):
        run.epoch(rows(("a", 1, 5), ("a", 1, None)))


@pytest.mark.parametrize("type_", [pa.timestamp("s"), pa.timestamp("ms", "UTC")])
def test_an_event_time_that_no_microseconds_hold_fails_the_operator(started: Any, type_: pa.DataType) -> None:
    """Sources refuse it as a bad record; a process function may still give one."""
    schema = SCHEMA.set(SCHEMA.get_field_index("t"), pa.field("t", type_))
    run = started(build_operator(window(), [OperatorInput(schema, "t")]))
    with wording.raises(OperatorFailed):
        run.epoch(pa.table([["a", "a"], [1, 1], pa.array([0, 2**62]).cast(type_)], schema=schema))


def test_interfaces_example_of_late_and_emitted(started: Any) -> None:
    """DESIGN 8.1: delay 2h, delivered to 12:00; then 09:30 is late, 10:00 is not, [09:00, 10:00) was emitted."""
    run = started(build_operator(window(), [OperatorInput(SCHEMA, "t")]))
    first = run.epoch(rows(("a", 1, 9 * 60 + 10), ("a", 1, 12 * 60)), None, 10 * HOUR_US)
    assert windows(first.rows) == [("a", 9 * 60, 1)]
    second = run.epoch(rows(("a", 2, 9 * 60 + 30), ("a", 3, 10 * 60)), 10 * HOUR_US, 10 * HOUR_US)
    assert second.late.column("x").to_pylist() == [2] and second.rows.num_rows == 0
    assert windows(run.epoch(rows(), 10 * HOUR_US, 11 * HOUR_US).rows) == [("a", 10 * 60, 1)]


@pytest.mark.parametrize(("watermark", "late"), [(HOUR_US - 1, 0), (HOUR_US, 1)])
def test_a_row_is_late_exactly_from_its_windows_end(started: Any, watermark: int, late: int) -> None:
    """`window_end` <= the watermark at the start of the epoch, to the microsecond."""
    run = started(build_operator(window(), [OperatorInput(SCHEMA, "t")]))
    run.epoch(rows(("a", 1, 50)), None, watermark)
    assert run.epoch(rows(("a", 2, 0)), watermark, watermark).late.num_rows == late


def test_windows_fire_without_input_and_their_state_goes(started: Any) -> None:
    """A timer needs no row of its key group; a final window leaves no state and no timer."""
    run = started(build_operator(window(), [OperatorInput(SCHEMA, "t")]))
    run.epoch(rows(("a", 1, 10), ("b", 1, 70)), None, 0)
    assert [next_timer(handle) for handle in run.handles] == [HOUR_US]
    assert windows(run.epoch(rows(), 0, HOUR_US, parallelism=3).rows) == [("a", 0, 1)]
    assert min(next_timer(h) for h in run.handles if h.timers) == 2 * HOUR_US
    assert windows(run.epoch(rows(), HOUR_US, END_OF_TIME).rows) == [("b", 60, 1)]
    assert run.state().num_rows == 0 and next_timer(run.handles[0]) is None and run.handles[0].live_rows == 0


def test_a_window_of_a_negative_time_starts_below_it(started: Any) -> None:
    """Alignment is to 1970-01-01T00:00Z, downwards, in every unit of time."""
    for unit, factor in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        schema = pa.schema([("k", pa.string()), ("t", pa.timestamp(unit))])
        run = started(build_operator(window(), [OperatorInput(schema, "t")]))
        table = pa.table([["a", "a"], pa.array([-factor, 0], pa.int64()).cast(pa.timestamp(unit))], schema=schema)
        assert windows(run.epoch(table, None, END_OF_TIME).rows) == [("a", -60, 1), ("a", 0, 1)]


def test_with_allowed_lateness_a_fired_window_is_emitted_again_until_it_closes(started: Any) -> None:
    """Updates: fired once on time, again for each epoch that brings it rows, late from end + allowed lateness."""
    calls = {"n": parse_aggregate("count(*)")}
    run = started(
        TumblingWindowByKey("win", ["k"], FixedWindows(HOUR_US), Emission(HOUR_US), calls, OperatorInput(SCHEMA, "t"))
    )
    assert run.operator.output_kind is OutputKind.UPDATES
    assert run.operator.output_key == ("k", "window_start", "window_end")
    assert windows(run.epoch(rows(("a", 1, 10)), None, HOUR_US).rows) == [("a", 0, 1)]
    assert windows(run.epoch(rows(("b", 1, 70)), HOUR_US, HOUR_US).rows) == []
    again = run.epoch(rows(("a", 1, 20)), HOUR_US, HOUR_US + 1)
    assert windows(again.rows) == [("a", 0, 2)] and again.late.num_rows == 0
    closed = run.epoch(rows(("a", 1, 30)), 2 * HOUR_US, 2 * HOUR_US)
    assert closed.late.num_rows == 1 and windows(closed.rows) == [("b", 60, 1)]
    assert run.state().column("k").to_pylist() == ["b"]


def test_a_repeat_at_the_very_edge_of_the_ttl_is_not_emitted_twice(started: Any) -> None:
    """Not late at exactly watermark - ttl: the key must still be remembered then."""
    run = started(build_operator(deduplicate("1h"), [OperatorInput(SCHEMA, "t")]))
    assert run.epoch(rows(("a", 1, 0)), None, HOUR_US).rows.num_rows == 1
    edge = run.epoch(rows(("a", 2, 0)), HOUR_US, HOUR_US)
    assert edge.rows.num_rows == 0 and edge.late.num_rows == 0
    late = run.epoch(rows(("a", 3, 0)), HOUR_US + 1, HOUR_US + 1)
    assert late.late.num_rows == 1 and run.state().num_rows == 0


def test_rows_in_flight_that_hold_back_firing_do_not_change_the_remembered_keys(started: Any) -> None:
    """DESIGN 4.3: lateness decides; an unaligned run, whose firing lags, equals the aligned one row for row."""
    results = []
    for firing in (3 * HOUR_US, 0):
        run = started(build_operator(deduplicate("1h"), [OperatorInput(SCHEMA, "t")]))
        run.epoch(rows(("a", 1, 0)), None, firing)
        results.append(run.epoch(rows(("a", 2, 180)), 3 * HOUR_US, 3 * HOUR_US).rows.column("x").to_pylist())
    assert results == [[2], [2]]


def test_deduplicated_rows_keep_all_columns_and_plan_order(started: Any) -> None:
    """The first row per key, whole, in the order of the plan."""
    run = started(build_operator(deduplicate(), [OperatorInput(SCHEMA, None)]))
    out = run.epoch(rows(("b", 1, 0), ("a", 2, 1), ("b", 3, 2), (None, 4, 3), (None, 5, 4))).rows
    assert out.equals(rows(("b", 1, 0), ("a", 2, 1), (None, 4, 3)))
    assert run.operator.output_kind is OutputKind.APPEND and run.operator.output_key == ()


def test_a_key_is_remembered_up_to_the_microsecond_at_which_its_row_is_late(
    started: Callable[[StatefulOperator], OperatorRun],
) -> None:
    """Not forgotten while a repeat would be on time, and not remembered when it is late: a newer row is a first one."""
    ttl_us = HOUR_US
    first = rows(("a", 1, 0))
    again = rows(("a", 2, 120))
    for lateness_us, expected in ((ttl_us, 0), (ttl_us + 1, 1)):
        run = started(build_operator(deduplicate("1h"), [OperatorInput(SCHEMA, "t")]))
        assert run.epoch(first, None, None).rows.num_rows == 1
        assert run.epoch(again, lateness_us, None).rows.num_rows == expected
        repeat = run.epoch(first, lateness_us, None)
        assert (repeat.rows.num_rows, repeat.late.num_rows) == (0, expected)
