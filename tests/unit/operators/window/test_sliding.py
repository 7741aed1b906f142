"""Sliding windows: a row counts for the windows that are not done by its stamp, and state has one row per pane."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from milepost.operators.build import build_operator
from milepost.operators.contract import OperatorFailed, OperatorInput
from milepost.operators.window import sliding
from milepost.operators.window.spec import WindowOperator
from milepost.protocol.records.object_store import StoreConfig
from milepost.state.keyed.restore import restore_state
from milepost.state.layers.layer import KeySpec
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.storage.local.store import LocalStore
from milepost_testkit import wording
from milepost_testkit.tasks.operators.subtasks import OperatorRun
from milepost_testkit.tasks.operators.timers import next_timer

SCHEMA = pa.schema([("k", pa.string()), ("x", pa.float64()), ("t", pa.timestamp("us", "UTC"))])
MINUTE_US = 60_000_000
END_OF_TIME = 2**63 - 1

Start = Callable[..., OperatorRun]


def begun(folder: Path, window: dict[str, Any], **options: Any) -> OperatorRun:
    """The operator of a spec, which counts rows unless its options say otherwise, before its first epoch."""
    spec = WindowOperator.model_validate(
        {"uid": "win", "kind": "window", "inputs": ["in"], "key": ["k"], "window": window,
         "aggregates": {"n": "count(*)"}, **options}
    )  # fmt: skip
    operator = build_operator(spec, [OperatorInput(SCHEMA, "t")])
    return OperatorRun(operator, LocalStore(StoreConfig(f"file://{folder}/store")))


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def started(size: str = "30m", slide: str = "10m", lateness: str = "0s", **calls: str) -> OperatorRun:
        options: dict[str, Any] = {"aggregates": calls} if calls else {}
        return begun(tmp_path, {"sliding": {"size": size, "slide": slide}}, allowed_lateness=lateness, **options)

    return started


def rows(*values: tuple[str | None, float]) -> pa.Table:
    """Rows of (key, minute since 1970), each with a float that says which one it is."""
    times = pa.array([round(minute * MINUTE_US) for _, minute in values], pa.int64()).cast(SCHEMA.field("t").type)
    return pa.table([[k for k, _ in values], [float(place) for place in range(len(values))], times], schema=SCHEMA)


def found(table: pa.Table) -> list[tuple[Any, ...]]:
    """(key, end in minutes, n) per window."""
    ends = table.column("window_end").cast(pa.int64()).to_pylist()
    columns = [table.column("k").to_pylist(), [end // MINUTE_US for end in ends], table.column(3).to_pylist()]
    return list(zip(*columns, strict=True))


def test_a_row_is_in_each_window_around_it(start: Start) -> None:
    """Before 1970 as well; and a time at an edge is in the windows that begin there."""
    run = start()
    out = run.epoch(rows(("a", 0), ("a", 9.99), ("b", -0.01)), None, END_OF_TIME).rows
    assert found(out) == [("b", 0, 1), ("a", 10, 2), ("b", 10, 1), ("a", 20, 2), ("b", 20, 1), ("a", 30, 2)]
    start_us, end_us = (out.column(name).cast(pa.int64()).to_numpy() for name in ("window_start", "window_end"))
    assert set((end_us - start_us).tolist()) == {30 * MINUTE_US}
    assert not run.state().num_rows


def test_state_has_a_row_per_pane_whatever_the_number_of_windows(start: Start) -> None:
    run = start("1000m", "1m")
    run.epoch(rows(("a", 0), ("a", 0.5), ("a", 1), ("b", 1)), None, None)
    assert run.state().num_rows == 3


def test_a_row_counts_for_the_windows_that_are_not_done_by_its_stamp(start: Start) -> None:
    """Also where this subtask has not fired so far: rows with an older stamp are in flight, and join those windows."""
    run = start()
    run.epoch(rows(("a", 5)), None, 0)
    out = run.pieces([[(rows(("a", 6)), 15 * MINUTE_US), (rows(("a", 7)), 0)]], 0)
    assert not out.rows.num_rows and run.state().num_rows == 2
    assert found(run.epoch(rows(), 15 * MINUTE_US, END_OF_TIME).rows) == [("a", 10, 2), ("a", 20, 3), ("a", 30, 3)]


def test_a_row_is_late_when_its_last_window_is_done(start: Start) -> None:
    for lateness in (0, 20):
        stamp = (30 + lateness) * MINUTE_US
        run = start(lateness=f"{lateness}m")
        assert run.epoch(rows(("a", 9.99)), stamp, stamp).late.num_rows == 1
        assert not run.epoch(rows(("a", 10)), stamp, stamp).late.num_rows


def test_a_window_is_emitted_again_until_its_lateness_is_over(start: Start) -> None:
    run = start(lateness="10m")
    assert found(run.epoch(rows(("a", 5), ("b", 5)), None, 20 * MINUTE_US).rows) == [
        ("a", 10, 1), ("b", 10, 1), ("a", 20, 1), ("b", 20, 1),
    ]  # fmt: skip
    again = run.epoch(rows(("a", 6)), 20 * MINUTE_US, 20 * MINUTE_US).rows
    assert found(again) == [("a", 20, 2)], "the one that ended at 10 is over, the one until 30 is not done"
    assert found(run.epoch(rows(), 20 * MINUTE_US, 30 * MINUTE_US).rows) == [("a", 30, 2), ("b", 30, 1)]
    assert found(run.epoch(rows(("a", 7)), 30 * MINUTE_US, 30 * MINUTE_US).rows) == [("a", 30, 3)]
    run.epoch(rows(), 30 * MINUTE_US, 40 * MINUTE_US)
    assert not run.state().num_rows


def test_each_end_of_a_window_wakes_the_job_without_a_row(start: Start) -> None:
    """A checkpoint records when the next window is done, although the pane's row was written once."""
    run = start()
    seen = []
    for minute in (0, 10, 15, 20, 30):
        run.epoch(rows(("a", 5)) if not minute else rows(), None if not minute else 0, minute * MINUTE_US)
        timers = [next_timer(handle) for handle in run.handles if handle.timers]
        seen.append([timer // MINUTE_US for timer in timers if timer is not None])
    assert seen == [[10], [20], [20], [30], []]


BERLIN = {"sliding": {"size": "3d", "slide": "1d"}, "timezone": "Europe/Berlin", "offset": "6h"}


def days(folder: Path, window: dict[str, Any] = BERLIN) -> OperatorRun:
    return begun(folder, window, aggregates={"n": "count(*)", "s": "sum(x)"})


@pytest.mark.deep
@pytest.mark.parametrize("months", [3, 10])
def test_windows_of_local_days_are_those_of_duckdb_where_the_clock_is_set(tmp_path: Path, months: int) -> None:
    """Three days of 71, 72 and 73 hours, each from six in the morning; in several epochs as in one."""
    begin = datetime(2026, months, 24, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    given = rows(*((key, begin / timedelta(minutes=1) + hour * 60) for hour in range(24 * 8) for key in ("a", "b")))
    at_once = days(tmp_path / "one").epoch(given, None, END_OF_TIME).rows
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'Europe/Berlin'")
    connection.register("given", given)
    first = "date_trunc('day', t::TIMESTAMP - INTERVAL 6 HOUR) + INTERVAL 6 HOUR"
    each = f"SELECT k, x, {first} AS first, unnest(range(3))::INTEGER AS back FROM given"
    bounds = "(first - to_days(back))::TIMESTAMPTZ AS s, (first + to_days(3 - back))::TIMESTAMPTZ AS e"
    grouped = f"SELECT k, {bounds}, count(*), sum(x) FROM ({each}) GROUP BY ALL ORDER BY s, k"
    query = f"SELECT k, epoch_us(s), epoch_us(e), * EXCLUDE (k, s, e) FROM ({grouped})"
    columns = [at_once.column(name).cast(pa.int64()) for name in ("window_start", "window_end")]
    found_rows = zip(*(at_once.column(0).to_pylist(), *(one.to_pylist() for one in columns),
                       *(at_once.column(name).to_pylist() for name in ("n", "s"))), strict=True)  # fmt: skip
    assert list(found_rows) == connection.sql(query).fetchall()
    lengths = {end - start for start, end in zip(*(one.to_numpy() // (60 * MINUTE_US) for one in columns), strict=True)}
    assert lengths == {72, 71 if months == 3 else 73}
    run, emitted = days(tmp_path / "two"), []
    for day in range(8):
        times = given.column("t").cast(pa.int64()).to_numpy() // (1440 * MINUTE_US) - begin.days
        stamp_us = (begin.days + day) * 1440 * MINUTE_US
        emitted.append(run.epoch(given.filter(pa.array(times == day)), stamp_us, stamp_us + 1440 * MINUTE_US).rows)
        assert all(timer > stamp_us + 1440 * MINUTE_US for one in run.handles for _, timer in one.timers)
    emitted.append(run.epoch(rows(), stamp_us, END_OF_TIME).rows)
    assert pa.concat_tables(emitted).equals(at_once) and not run.state().num_rows


def test_a_pane_of_days_wakes_the_job_before_its_next_window_is_done(tmp_path: Path) -> None:
    """Whatever the length of the days: it may wake it too early, which fires nothing, and never too late."""
    run, hour_us = days(tmp_path), 60 * MINUTE_US
    march_us = (datetime(2026, 3, 27, 12, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    run.epoch(rows(("a", march_us / MINUTE_US)), None, march_us)
    ends = [march_us + hours * hour_us for hours in (17, 40, 64)]
    for end_us in ends:
        assert not run.epoch(rows(), end_us - 1, end_us - 1).rows.num_rows
        assert min(timer for one in run.handles for _, timer in one.timers) == end_us
        assert run.epoch(rows(), end_us, end_us).rows.num_rows == 1
    assert not run.state().num_rows


def test_many_windows_are_merged_part_by_part_to_the_same_rows(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    given = rows(*((key, minute / 2) for minute in range(-40, 40) for key in ("a", "b", None)))
    calls = {"n": "count(*)", "s": "sum(x)", "low": "min(t)"}
    whole = start(**calls).epoch(given, None, END_OF_TIME).rows
    monkeypatch.setattr(sliding, "PAIRS_AT_ONCE", 7)
    assert start(**calls).epoch(given, None, END_OF_TIME, cuts=[3, 50]).rows.equals(whole)
    assert whole.num_rows == 3 * 6


def test_a_time_whose_windows_have_no_bounds_is_refused_unless_it_is_late(start: Start) -> None:
    run = start()
    ends = pa.table(
        [["a", "b"], [0.0, 0.0], pa.array([-(2**63), 2**63 - 1]).cast(SCHEMA.field("t").type)], schema=SCHEMA
    )
    for one in (0, 1):
        with wording.raises(OperatorFailed):
            run.epoch(ends.slice(one, 1), None, None)
    assert run.epoch(ends.slice(0, 1), 0, 0).late.num_rows == 1


@pytest.mark.parametrize("lateness", ["0s", "30m"])
def test_a_window_that_another_subtask_has_fired_is_not_fired_again(start: Start, lateness: str) -> None:
    """A joined subtask continues from the least watermark; windows that are emitted again are complete."""
    run = start(lateness=lateness)
    run.epoch(rows(("a", 5), ("a", 15)), None, 0)
    ahead = run.restore(0, 1)
    fired = run.operator.begin({"": ahead}, 0).finish(20 * MINUTE_US)
    assert found(fired) == [("a", 10, 1), ("a", 20, 2)]
    handle = ahead.freeze(20 * MINUTE_US).encode("chk-9/t1/state/").handle
    table = run.operator.tables[""]
    identity = StateIdentity.of(
        "win", KeySpec(table.key, table.routing_key, run.hasher), table.schema, range(16), run.max_parallelism
    )
    joined = restore_state(
        identity, [handle], CheckpointObjects(run.store, 9, "t"), watermark_us=0, firing=[20 * MINUTE_US]
    )
    again = run.operator.begin({"": joined}, 0)
    if lateness == "0s":
        assert found(again.finish(30 * MINUTE_US)) == [("a", 30, 2)]
    else:
        list(again.rows(0, rows(("a", 6)), 0))
        assert found(again.finish(30 * MINUTE_US)) == [("a", 10, 2), ("a", 20, 3), ("a", 30, 3)]


@pytest.mark.parametrize("window", [{"sliding": {"size": "20m", "slide": "10m"}}, {"tumbling": "10m"}])
def test_early_windows_are_emitted_once_per_epoch_and_when_they_are_done(
    tmp_path: Path, window: dict[str, Any]
) -> None:
    """In pieces as well: a window that an epoch changes and fires is there once."""
    run = begun(tmp_path, window, emit="early")
    assert run.operator.output_key == ("k", "window_start", "window_end")
    out = [
        run.epoch(rows(("a", 5), ("b", 5)), None, None, cuts=[1]).rows,
        run.epoch(rows(("a", 6), ("a", 7)), None, 10 * MINUTE_US, cuts=[1]).rows,
        run.epoch(rows(("a", 12)), 10 * MINUTE_US, 10 * MINUTE_US).rows,
        run.epoch(rows(), 10 * MINUTE_US, 20 * MINUTE_US).rows,
    ]
    tumbling = [[("a", 10, 1), ("b", 10, 1)], [("a", 10, 3), ("b", 10, 1)], [("a", 20, 1)], [("a", 20, 1)]]
    slides = [
        [("a", 10, 1), ("a", 20, 1), ("b", 10, 1), ("b", 20, 1)],
        [("a", 10, 3), ("a", 20, 3), ("b", 10, 1)],
        [("a", 20, 4), ("a", 30, 1)],
        [("a", 20, 4), ("b", 20, 1)],
    ]
    assert [sorted(found(one)) for one in out] == (tumbling if "tumbling" in window else slides)


@pytest.mark.parametrize("emit", ["final", "early"])
@pytest.mark.parametrize("window", [{"tumbling": "10m"}, {"sliding": {"size": "20m", "slide": "10m"}}])
def test_a_window_that_fires_within_an_epoch_is_not_emitted_again_at_its_end(
    tmp_path: Path, window: dict[str, Any], emit: str
) -> None:
    """Where it had not been fired before; one that receives a row after that is emitted again."""
    run = begun(tmp_path, window, emit=emit, allowed_lateness="1h")
    run.epoch(rows(("a", 5)), None, 10 * MINUTE_US)
    at = [(rows(("a", 6), ("a", 15)), 10 * MINUTE_US), (rows(("b", 25)), 20 * MINUTE_US)]
    once = run.pieces([[*at, (rows(("b", 35)), 30 * MINUTE_US)]], 30 * MINUTE_US)
    again = run.pieces([[(rows(("a", 7)), 30 * MINUTE_US)]], 30 * MINUTE_US)
    tumbling = [[("a", 10, 2), ("a", 20, 1), ("b", 30, 1)], [("a", 10, 3)]]
    slides = [
        [("a", 10, 2), ("a", 20, 3), ("a", 30, 1), ("b", 30, 1)],
        [("a", 10, 3), ("a", 20, 4)],
    ]
    assert [sorted(one for one in found(output.rows) if one[1] <= 30) for output in (once, again)] == (
        tumbling if "tumbling" in window else slides
    )
