"""`idle_timeout`: a feed that went quiet holds windows over two feeds back no longer, today and in a replay."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from milepost.jobmaster import CheckpointDetails, NothingToDo
from milepost.jobmaster.job.context import JobContext
from milepost_testkit.jobs.sparkless.two_feeds import HOUR_S, TwoFeeds
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec
from milepost_testkit.tasks.clocks import ticking

SPEC = """\
name: sales
storage: ../store
sources:
  web: {format: csv, path: ../landing/web/*.csv, settle: 0s, schema: {k: int64, at: "timestamp[us, UTC]"},
        event_time: at}
  shop: {format: csv, path: ../landing/shop/*.csv, settle: 0s, schema: {k: int64, at: "timestamp[us, UTC]"},
         event_time: at, idle_timeout: TIMEOUT}
operators:
  - {uid: paid, kind: join, inputs: [web, shop], key: [k], within: [-30m, 30m], columns: {paid_at: right.at}}
  - {uid: hourly, kind: window, inputs: [paid], key: [k], window: {tumbling: 1h}, aggregates: {rows: count(*)}}
sinks:
  - {name: pairs, input: paid, format: parquet, path: ../lake/pairs, mode: append}
  - {name: hours, input: hourly, format: parquet, path: ../lake/hours, mode: append}
  - {name: late, input: paid.late.shop, format: parquet, path: ../lake/late, mode: append}
checkpointing: {retained: {last: 20}}
spark: {parallelism: 2}
"""


def made(folder: Path, monkeypatch: pytest.MonkeyPatch, timeout: str) -> TwoFeeds:
    return TwoFeeds.create(folder, SPEC.replace("TIMEOUT", timeout), "k", SparklessRunner, monkeypatch)


def assert_a_replay_comes_to_the_same(sales: TwoFeeds) -> None:
    tables = {name: sales.master.reports.read(name) for name in ("pairs", "hours", "late")}
    sales.replay()
    for name, table in tables.items():
        assert_same_rows(sales.master.reports.read(name), table, name)


@pytest.mark.deep
def test_a_source_that_is_not_timed_out_holds_windows_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sales = made(tmp_path, monkeypatch, "null")
    sales.land("shop", (1, "00:30"))
    sales.land("web", (1, "00:40"), (2, "05:30"))
    sales.epoch()
    sales.ahead_s = 1000 * HOUR_S
    assert isinstance(sales.run(), NothingToDo)
    assert (sales.master.reports.read("pairs").num_rows, sales.hours()) == (1, [])


@pytest.mark.deep
def test_windows_go_on_without_a_quiet_source_and_a_replay_comes_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision is taken by the trigger's clock and read from the plan: a replay, at any time, has that one."""
    sales = made(tmp_path, monkeypatch, "2h")
    sales.land("shop", (1, "00:30"))
    sales.land("web", (1, "00:40"), (2, "05:30"))
    sales.epoch()
    assert sales.hours() == []
    sales.ahead_s = 1 * HOUR_S
    sales.land("web", (3, "06:30"))
    assert not sales.epoch().sources["shop"].idle
    assert sales.hours() == [], "an hour is not two"
    sales.ahead_s = 3 * HOUR_S
    quiet = sales.epoch()
    assert quiet.sources["shop"].idle and quiet.rows_in == 0, "an epoch for what can be emitted, though nothing landed"
    sources = sales.master.reports.status().sources
    assert sources is not None and (sources["shop"].idle, sources["web"].idle) == (True, False)
    assert sales.hours() == [0]
    assert isinstance(sales.run(), NothingToDo), "once"
    sales.land("shop", (2, "05:40"), (3, "06:45"))  # back: the first of them is late by now
    sales.land("web", (4, "08:00"))
    back = sales.epoch()
    assert (back.sources["shop"].idle, back.late_rows) == (False, 1)
    assert [sales.was_idle(n) for n in (2, 3, 4)] == [(False, False), (False, True), (True, False)]
    assert sales.hours() == [0], "the shop is at 06:45, and holds back again"
    assert sorted(sales.master.reports.read("pairs")["k"].to_pylist()) == [1, 3]
    sales.ahead_s = 500 * HOUR_S
    assert_a_replay_comes_to_the_same(sales)
    assert sales.epoch().sources["shop"].idle, "again, by the clock of now"
    assert sales.hours() == [0, 6]


@pytest.mark.long
def test_a_replay_emits_the_same_rows_while_a_source_is_idle_and_after_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch that emitted it read nothing, and is not replayed: the next one begins where that had come to."""
    sales = made(tmp_path, monkeypatch, "2h")
    sales.land("shop", (1, "00:30"))
    sales.land("web", (1, "00:40"), (2, "05:30"))
    sales.epoch()
    sales.ahead_s = 3 * HOUR_S
    assert sales.epoch().rows_in == 0 and sales.hours() == [0]
    sales.land("shop", (2, "00:45"))
    sales.land("web", (4, "08:00"))
    assert sales.epoch().late_rows == 1
    assert_a_replay_comes_to_the_same(sales)


def test_where_every_source_is_quiet_nothing_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sales = made(tmp_path, monkeypatch, "2h")
    spec = sales.folder / "config" / "sales.yaml"
    edit_spec(spec, {"        event_time: at}": "        event_time: at, idle_timeout: 2h}"})
    sales.land("shop", (1, "00:30"))
    sales.land("web", (1, "00:40"), (2, "05:30"))
    sales.epoch()
    sales.ahead_s = 5 * HOUR_S
    assert isinstance(sales.run(), NothingToDo)


@pytest.mark.deep
def test_a_source_that_never_had_anything_is_quiet_since_the_first_trigger_that_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sales = made(tmp_path, monkeypatch, "2h")
    sales.land("web", (1, "00:40"))
    assert not sales.epoch().sources["shop"].idle
    sales.ahead_s = 3 * HOUR_S
    sales.land("web", (2, "05:40"))
    assert sales.epoch().sources["shop"].idle


def made_with_rows_in_flight(folder: Path, monkeypatch: pytest.MonkeyPatch, *, between: bool) -> TwoFeeds:
    """The shop's rows wait before an operator. between: one that the join does not read."""
    lines = "  - {uid: once, kind: deduplicate, inputs: [shop], key: [k]}\n"
    if between:
        lines = lines.replace("once", "first") + "  - {uid: once, kind: deduplicate, inputs: [first], key: [k]}\n"
    spec = SPEC.replace("operators:\n", f"operators:\n{lines}").replace("[web, shop], key", "[web, once], key")
    spec = spec.replace("paid.late.shop", "paid.late.once").replace("TIMEOUT", "2h")
    spec = spec.replace("last: 20}", "last: 20}, aligned_timeout: 1ms").replace("parallelism: 2", "parallelism: 1")
    spec = spec.replace("parallelism: 1", "parallelism: 1, buffer_size: 1KB")
    return TwoFeeds.create(folder, spec, "k", partial(SparklessRunner, clock=ticking()), monkeypatch)


@pytest.mark.long
def test_an_epoch_of_a_fork_that_only_works_rows_off_keeps_since_when_a_source_is_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no recorded range to take that from; the one before it in the fork has it."""
    sales = made_with_rows_in_flight(tmp_path, monkeypatch, between=False)
    edit_spec(sales.folder / "config" / "sales.yaml", {"aligned_timeout": "max_in_flight: 1B, aligned_timeout"})
    sales.land("shop", *[(1, "00:30")] * 6, (2, "00:30"))
    sales.epoch()
    sales.ahead_s = 3 * HOUR_S
    sales.land("web", (1, "00:40"), (3, "09:00"))
    while isinstance(sales.run(), CheckpointDetails):
        pass
    sales.replay()
    context = JobContext(sales.loaded())
    state = context.head().state
    of_fork = [one for one in map(context.metadata, state.checkpoints) if one.timeline == state.live]
    quiet = [one.sources["shop"] for one in of_fork if "shop" in one.sources]
    assert any(not one.sources["shop"].objects and not one.sources["web"].objects for one in of_fork[1:])
    assert all(one.active_ms == quiet[0].active_ms for one in quiet) and quiet[0].active_ms is not None
    assert quiet[-1].idle


@pytest.mark.deep
@pytest.mark.parametrize("between", [False, True])
def test_rows_of_a_source_that_has_become_idle_are_on_time_where_they_wait_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: bool
) -> None:
    """What was read before is under way: who reads the operators that it passes waits for it, however long that is."""
    sales = made_with_rows_in_flight(tmp_path, monkeypatch, between=between)
    sales.land("web", (1, "00:40"), (2, "00:40"))
    while isinstance(sales.run(), CheckpointDetails):
        pass
    sales.land("shop", *[(1, "00:30")] * 6, (2, "00:30"))
    assert sales.epoch().in_flight_bytes
    sales.ahead_s = 3 * HOUR_S
    sales.land("web", (3, "09:00"))
    waited = 0
    while isinstance(epoch := sales.run(), CheckpointDetails):
        waited += epoch.sources["shop"].idle and bool(epoch.in_flight_bytes)
    assert waited > 1, "rows were in flight while the shop was idle"
    assert sorted(sales.master.reports.read("pairs")["k"].to_pylist()) == [1, 2]
    assert sales.master.reports.read("late").num_rows == 0
    assert sales.hours() == [0, 0], "once they are through nobody waits any more"
