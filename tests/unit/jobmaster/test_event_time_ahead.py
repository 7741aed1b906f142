"""`max_event_time_ahead`: one wrong date does not make all that follows late, today or in a replay years later."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from milepost.epoch.iso_times import watermark_text
from milepost.epoch.metadata import CheckpointMetadata
from milepost.jobmaster import CheckpointReport, NothingToDo, Session
from milepost.jobmaster.reports.checkpoint.details import AheadObject, RowsAheadReport
from milepost.storage.local.store import LocalStore
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner

DAY_S = 86_400
WINDOW = {
    "{k: int64, v: string}": '{k: int64, v: string, t: "timestamp[us, UTC]"}\n    event_time: t',
    "operators:\n": "operators:\n  - {uid: hourly, kind: window, inputs: [rows], key: [k], window: {tumbling: 1h}, "
    "aggregates: {rows: count(*)}}\n",
    "sinks:\n": "sinks:\n  - {name: hours, input: hourly, format: parquet, path: ../lake/hours, mode: append}\n"
    "  - {name: late, input: hourly.late, format: parquet, path: ../lake/late, mode: append}\n",
    "last: 1": "last: 20",
}


class Clock:
    """The stores' clock, which a test moves on; measurements by other clocks are not tested here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0.0
        monkeypatch.setattr(LocalStore, "clock_ms", lambda _: round((time.time() + self.ahead_s) * 1000))

    def after(self, days: float) -> str:
        """A time so many days from now, by this clock, as rows have it."""
        now = datetime.now(UTC) + timedelta(seconds=self.ahead_s, days=days)
        return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def land(job: SparklessJob, name: str, *rows: tuple[int, str]) -> None:
    job.land(name, "k,v,t\n" + "".join(f"{k},a,{t}\n" for k, t in rows))


def run(job: SparklessJob) -> CheckpointReport | NothingToDo:
    return job.master.epochs.run(Session.cli(), SparklessRunner())


def metadata(job: SparklessJob) -> CheckpointMetadata:
    context = job.context
    state = context.head().state
    found = context.base_metadata(state, state.timeline().head)
    assert found is not None
    return found


@pytest.mark.deep
@pytest.mark.parametrize(("setting", "late"), [("7d", 0), ("null", 1)])
def test_one_row_of_the_year_9999_makes_later_rows_late_only_where_it_may(
    tmp_path: Path, setting: str, late: int
) -> None:
    job = SparklessJob.create(
        tmp_path, WINDOW | {"event_time: t": f"event_time: t\n    max_event_time_ahead: {setting}"}
    )
    land(job, "a.csv", (1, "2026-01-01T00:30:00Z"), (2, "9999-12-31T23:59:59Z"))
    first = run(job)
    land(job, "b.csv", (1, "2026-01-01T05:30:00Z"))
    assert (run(job).late_rows, job.master.reports.read("late").num_rows) == (late, late)
    ahead = first.sources["rows"].ahead
    if setting == "null":
        assert ahead == RowsAheadReport(0, ())
        return
    assert first.sources["rows"].newest_event_time == "2026-01-01T00:30:00+00:00"
    assert ahead == RowsAheadReport(1, (AheadObject("a.csv", 1, "9999-12-31T23:59:59+00:00"),))
    assert job.master.reports.show(2).sources["rows"].ahead.rows == 0
    assert job.master.reports.read("hours").column("k").to_pylist() == [1], "the hour that has passed, and no other"
    run_drained = job.master.epochs.run(Session.cli(), SparklessRunner(), drain=True)
    assert run_drained.final
    assert sorted(job.master.reports.read("hours").column("k").to_pylist()) == [1, 1, 2], "the row was kept"


def test_without_the_key_a_week_is_what_a_row_may_be_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    job = SparklessJob.create(tmp_path, WINDOW)
    land(job, "a.csv", (1, clock.after(6.9)))
    assert run(job).sources["rows"].ahead.rows == 0
    land(job, "b.csv", (1, clock.after(7.1)))
    assert run(job).sources["rows"].ahead.rows == 1


@pytest.mark.deep
def test_how_many_subtasks_read_does_not_matter(tmp_path: Path) -> None:
    found = []
    for parallelism in (1, 3):
        wide = WINDOW | {
            "checkpointing:": f"spark: {{parallelism: {parallelism}}}\ncheckpointing:",
            "    limits_per_epoch: {max_files: 1}\n": "",
        }
        job = SparklessJob.create(tmp_path / f"{parallelism}", wide)
        for n in range(7):
            land(job, f"{n}.csv", (n, f"2026-01-0{n + 1}T00:00:00Z"), (n, f"{n + 3000}-01-01T00:00:00Z"))
        run(job)
        source = metadata(job).sources["rows"]
        found.append((source.watermark_us, source.newest_event_us, source.ahead_rows, source.ahead))
        hours = job.master.reports.read("hours")
    assert found[0] == found[1]
    assert (found[0][2], [one.key for one in found[0][3]]) == (7, [f"{n}.csv" for n in range(5)])
    assert sorted(hours.column("k").to_pylist()) == list(range(6)), "the newest hour is open, and those to come"


@pytest.mark.parametrize("ranges_per_epoch", [1, 2])
def test_a_replay_measures_from_the_trigger_that_first_read_each_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranges_per_epoch: int
) -> None:
    """Three days between two triggers, a month until the replay: by any other time other rows would count."""
    clock = Clock(monkeypatch)
    job = SparklessJob.create(tmp_path, WINDOW)
    now, then = clock.after(0), clock.after(8)
    land(job, "a.csv", (1, now), (2, then))  # ahead
    first = run(job).sources["rows"]
    clock.ahead_s = 3 * DAY_S
    land(job, "b.csv", (3, then))  # not ahead any more
    second = run(job).sources["rows"]
    told = [(one.ahead.rows, one.newest_event_time) for one in (first, second)]
    assert told == [(1, now.replace("Z", "+00:00")), (0, then.replace("Z", "+00:00"))]
    tables = {name: job.master.reports.read(name) for name in ("table", "hours", "late")}
    clock.ahead_s = 30 * DAY_S
    back_fill(job.master, SparklessRunner(), from_checkpoint=0, ranges_per_epoch=ranges_per_epoch)
    state = job.context.head().state
    replayed = [job.context.metadata(one).sources["rows"] for one in state.checkpoints if one.timeline == state.live]
    assert [one.ahead_rows for one in replayed] == ([1, 0] if ranges_per_epoch == 1 else [1])
    assert watermark_text(replayed[-1].newest_event_us) == second.newest_event_time
    for name, table in tables.items():
        assert_same_rows(job.master.reports.read(name), table, name)
