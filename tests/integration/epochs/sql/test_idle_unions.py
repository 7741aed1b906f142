"""`idle_timeout` behind UNION ALL: two feeds into one window, of which one goes quiet and comes back."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from milepost.epoch.answers import EpochRunner
from milepost.jobmaster import NothingToDo, Session
from milepost_testkit.jobs.sparkless.two_feeds import HOUR_S, TwoFeeds
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import Plane

SPEC = """\
name: sales
storage: ../store
sources:
  shop: {format: csv, path: ../landing/shop/*.csv, settle: 0s, schema: {v: int64, at: "timestamp[us, UTC]"},
         event_time: at, idle_timeout: TIMEOUT}
  web: {format: csv, path: ../landing/web/*.csv, settle: 0s, schema: {v: int64, at: "timestamp[us, UTC]"},
        event_time: at}
operators:
  - {uid: sold, kind: sql, inputs: [shop, web], sql: "SELECT v % 1 AS k, v, at FROM shop
     UNION ALL SELECT v % 1 AS k, v, at FROM web"}
  - {uid: hourly, kind: window, inputs: [sold], key: [k], window: {tumbling: 1h},
     aggregates: {rows: count(*), v: sum(v)}}
sinks:
  - {name: hours, input: hourly, format: parquet, path: ../lake/hours, mode: append}
  - {name: late, input: hourly.late, format: parquet, path: ../lake/late, mode: append}
checkpointing: {retained: {last: 20}}
spark: {master: "local[2]", parallelism: 2}
"""


@pytest.fixture
def runner(plane: Plane) -> EpochRunner:
    return plane()


def made(folder: Path, runner: EpochRunner, monkeypatch: pytest.MonkeyPatch, timeout: str) -> TwoFeeds:
    return TwoFeeds.create(folder, SPEC.replace("TIMEOUT", timeout), "v", lambda: runner, monkeypatch)


def test_a_source_that_is_not_timed_out_holds_windows_back(
    tmp_path: Path, runner: EpochRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    sales = made(tmp_path, runner, monkeypatch, "null")
    sales.land("shop", (1, "00:30"))
    sales.land("web", (2, "05:30"))
    sales.epoch()
    sales.ahead_s = 1000 * HOUR_S
    assert isinstance(sales.run(), NothingToDo)
    assert sales.hours() == []


@pytest.mark.deep
def test_windows_go_on_without_a_quiet_source_and_a_replay_comes_to_the_same(
    tmp_path: Path, runner: EpochRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision is taken by the trigger's clock and read from the plan: a replay, at any time, has that one."""
    sales = made(tmp_path, runner, monkeypatch, "2h")
    sales.land("shop", (1, "00:30"))
    sales.land("web", (2, "00:40"), (4, "05:30"))
    sales.epoch()
    assert sales.hours() == []
    sales.ahead_s = 1 * HOUR_S
    sales.land("web", (8, "06:30"))
    assert not sales.epoch().sources["shop"].idle
    assert sales.hours() == [], "an hour is not two"
    sales.ahead_s = 3 * HOUR_S
    quiet = sales.epoch()
    assert quiet.sources["shop"].idle and quiet.rows_in == 0, (
        "an epoch for what can be emitted now, though nothing landed"
    )
    assert sales.hours() == [0, 5]
    assert isinstance(sales.run(), NothingToDo), "once"
    sales.land("shop", (16, "00:45"), (32, "06:45"))  # back: one row is late by now
    sales.land("web", (64, "08:00"))
    back = sales.epoch()
    assert (back.sources["shop"].idle, back.late_rows) == (False, 1)
    assert [sales.was_idle(n) for n in (2, 3, 4)] == [
        (False, False),
        (False, True),
        (True, False),
    ]
    assert sales.hours() == [0, 5], "the shop is at 06:45, and holds back again"
    tables = {name: sales.master.reports.read(name) for name in ("hours", "late")}
    sales.ahead_s = 500 * HOUR_S
    sales.replay()
    for name, table in tables.items():
        assert_same_rows(sales.master.reports.read(name), table, name)
    assert sales.epoch().sources["shop"].idle, "again, by the clock of now"
    assert sales.hours() == [0, 5, 6]
    sales.master.epochs.run(Session.cli(), runner, drain=True)
    _assert_every_row_is_in_its_window_or_late(sales)


def _assert_every_row_is_in_its_window_or_late(sales: TwoFeeds) -> None:
    given = pa.table({"v": [v for v, _ in sales.rows], "hour": [int(at[:2]) for _, at in sales.rows]})
    with duckdb.connect() as engine:
        for name, table in (
            ("given", given),
            ("hours", sales.master.reports.read("hours")),
            ("late", sales.master.reports.read("late")),
        ):
            engine.register(name, table)
        wanted = engine.sql(
            "SELECT hour, count(*) AS rows, sum(v)::BIGINT AS v FROM given WHERE v NOT IN (SELECT v FROM late) "
            "GROUP BY ALL"
        ).to_arrow_table()
        found = engine.sql("SELECT hour(window_start AT TIME ZONE 'UTC') AS hour, rows, v FROM hours").to_arrow_table()
    assert_same_rows(found, wanted, "hours")
