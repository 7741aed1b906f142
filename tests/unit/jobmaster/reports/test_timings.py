"""Phases add up to an epoch's time, and no failure to measure affects the epoch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.codec.records import encode
from milepost.epoch.metadata import decode_metadata
from milepost.epoch.timing.step_clock import StepClock
from milepost.epoch.timing.task_times import JOB_PHASES, TaskTimes, divided
from milepost.errors import StateCorrupt
from milepost.jobmaster import Session, Triggered
from milepost.jobmaster.figures.timings import phases_of
from milepost.jobmaster.job.measurements import PostCommitTimes, decode_post_commit_times, read_post_commit_times
from milepost.storage.layout import after_commit_key, after_commit_prefix
from milepost.storage.requests import REQUEST_COUNTER, StoreRequests
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.faulty_store import Effect, Fault
from milepost_testkit.stores.job_stores import break_store
from tests.unit.jobmaster.job.test_metadata import golden

NOTHING = TaskTimes(
    0, 0, 0, 0, 0, *[None] * 9, rows=0, bytes=0, buffers=None, alignment_ms=0, in_flight_bytes=0, left_ms=None
)
ROUNDING = len(JOB_PHASES)
MS = st.integers(0, 10**5)


@st.composite
def attempts(draw: st.DrawFn) -> TaskTimes:
    """Consecutive parts with gaps, and a concurrent upload."""
    parts = {name: draw(MS) for name in ("restore_ms", "process_ms", "emit_ms", "sync_ms", "stage_ms", "async_wait_ms")}
    total_ms = sum(parts.values()) + draw(MS)
    where = {"level": draw(st.integers(0, 2)), "subtask": draw(st.integers(0, 3)), "started_ms": draw(MS)}
    return replace(NOTHING, **where, **parts, total_ms=total_ms, async_ms=draw(MS))


def measured(phases: dict[str, int | None]) -> int:
    """The sum of the phases of an epoch's duration, which ends before `subsume`."""
    return sum(spent for name, spent in phases.items() if spent is not None and name not in ("total_ms", "subsume_ms"))


def source(started_ms: int, read_ms: int, emit_ms: int) -> TaskTimes:
    return replace(NOTHING, started_ms=started_ms, total_ms=read_ms + emit_ms, read_ms=read_ms, emit_ms=emit_ms)


def test_the_time_of_a_job_is_divided_in_proportion_to_its_tasks() -> None:
    """Level 0: two tasks in parallel, 100 ms in all; level 1: two in sequence, 60 ms. 40 ms were not measured."""
    level_1 = replace(NOTHING, level=1, total_ms=30, process_ms=20, async_wait_ms=10, async_ms=500)
    tasks = [source(0, 60, 40), source(0, 40, 60), replace(level_1, started_ms=100), replace(level_1, started_ms=130)]
    none = dict.fromkeys(("restore", "sync", "stage"), 0)
    assert divided(tasks, 200) == none | {"read": 50, "exchange": 50, "process": 40, "async": 20, "spark": 40}


def test_machines_whose_clocks_differ_do_not_make_the_job_longer() -> None:
    """By their own clocks the two tasks are an hour apart. The job took 100 ms."""
    phases = divided([source(0, 60, 40), source(3_600_000, 60, 40)], 100)
    assert (phases["read"], phases["exchange"], phases["spark"]) == (60, 40, 0)


@given(st.lists(attempts(), max_size=6), st.integers(0, 10**6))
def test_the_phases_of_a_job_add_up_to_it(tasks: list[TaskTimes], job_ms: int) -> None:
    """Whatever ran how often, in how many waves, on which machines."""
    phases = divided(tasks, job_ms)
    spent = [part for part in phases.values() if part is not None]
    assert list(phases) == list(JOB_PHASES) and min(spent) >= 0
    assert abs(sum(spent) - job_ms) <= ROUNDING


def test_unmeasured_time_is_not_guessed() -> None:
    """No task has a start time, so all of the job's time counts as Spark's."""
    timings = {"begin_ms": 5, "session_ms": 7, "job_ms": 400, "gate_ms": 30, "prepare_ms": 8}
    metadata = replace(decode_metadata(golden(), "golden"), timings=timings, tasks=())
    known = {"begin_ms": 5, "session_ms": 7, "spark_ms": 400, "gate_ms": 30, "prepare_ms": 8}
    assert {name: spent for name, spent in phases_of(metadata, ()).items() if spent is not None} == known


def test_a_total_that_is_shorter_than_its_parts_has_no_other_phase() -> None:
    """The clock of the committing machine is behind. No phase is shortened to make the sum fit."""
    metadata = decode_metadata(golden(), "golden")
    assert metadata.started_ms is not None
    phases = phases_of(metadata, (PostCommitTimes(metadata.started_ms + 1000, commit_ms=20),))
    assert (phases["total_ms"], phases["other_ms"], phases["commit_ms"]) == (1000, None, 20)
    phases = phases_of(metadata, (PostCommitTimes(metadata.started_ms + 1400, commit_ms=20),))
    assert (phases["other_ms"], measured(phases)) == (25, 1400)


def test_the_phases_of_an_epoch_add_up_to_its_wall_time(tmp_path: Path) -> None:
    """The run reports the same phases as later readers, and the command prints them."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    clock = StepClock()
    clock("all")
    document = job.master.epochs.run(Session.cli(), SparklessRunner())
    clock.end()
    phases = document.phases
    assert abs(measured(phases) - phases["total_ms"]) <= len(phases)
    assert phases["total_ms"] <= clock.ms("all")
    named = ("plan", "begin", "session", *JOB_PHASES, "gate", "prepare", "commit", "notify", "other", "subsume")
    assert [name for name in phases if phases[name] is not None] == [*(f"{name}_ms" for name in named), "total_ms"]
    assert phases["other_ms"] <= max(50, 0.1 * phases["total_ms"])  # a whole epoch of one file takes about as long
    shown = job.master.reports.show(1)
    assert (shown.phases, shown.notified_ms) == (phases, document.notified_ms)
    (listed,) = job.master.reports.list_checkpoints()
    (figures,) = job.master.reports.series(1).epochs
    assert {shown.duration_ms, document.duration_ms, listed.duration_ms, figures.duration_ms} == {phases["total_ms"]}
    assert document.notified_ms["table"] <= phases["notify_ms"], "the confirmation is not the sink's"
    told = milepost("show", job.folder / "config" / "small.yaml", "1").stdout.splitlines()
    spent = [[name.removesuffix("_ms"), f"{ms:,}"] for name, ms in phases.items() if ms is not None]
    table = told[next(place for place, line in enumerate(told) if line.startswith("Time: ")) + 3 :]
    assert [line.split()[:2] for line in table[: len(spent)]] == spent


def test_times_that_cannot_be_stored_do_not_fail_the_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are measurements: the epoch is complete and published, and `show` has what `_metadata` has."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    fault = Fault(lambda operation, key: operation == "put" and "/after-" in key, Effect.UNAVAILABLE)
    break_store(monkeypatch, job.loaded().job_store.url, fault)
    document = job.master.epochs.run(Session.cli(), SparklessRunner())
    assert fault.reached.is_set()
    assert document.status == "completed" and document.phases["notify_ms"] is not None
    shown = job.master.reports.show(1)
    assert (shown.phases["notify_ms"], shown.phases["other_ms"]) == (None, None)
    assert shown.phases["total_ms"] == document.phases["total_ms"], "recorded with the confirmation"
    assert shown.phases["plan_ms"] == document.phases["plan_ms"]


def test_each_airflow_task_of_a_run_stores_its_measurements(tmp_path: Path) -> None:
    """Under a scheduler every step is a process of its own; a step that is done again replaces what it had kept."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    session, clocks = Session.cli(), dict[str, StepClock]()
    triggered = job.master.triggers.trigger(session)
    assert isinstance(triggered, Triggered)
    report = job.master.epochs.run_epoch(session, 1, SparklessRunner(), planned=triggered.times)
    steps = {
        "complete": lambda: job.master.epochs.complete(session, 1),
        "notify table": lambda: job.master.epochs.notify_complete(session, 1, "table"),
        "subsume": lambda: job.master.epochs.subsume(session),
    }
    for again in (False, True):
        for step, act in steps.items():
            clocks[step] = StepClock()
            clocks[step](step)
            act()
            job.master.epochs.keep_times(1, report.metadata.token, clocks[step])
        shown = job.master.reports.show(1)
        phases, notified = shown.phases, {"table": clocks["notify table"].ms("notify table")}
        assert (phases["commit_ms"], phases["subsume_ms"], shown.notified_ms) == (
            clocks["complete"].ms("complete"),
            clocks["subsume"].ms("subsume"),
            notified,
        ), again
    assert len(list(job.context.store.list(after_commit_prefix(triggered.checkpoint_id, report.metadata.token)))) == 3
    assert abs(measured(phases) - phases["total_ms"]) <= len(phases)


def test_time_between_the_tasks_of_airflow_is_a_phase_of_its_own() -> None:
    """Planned in 100 ms, run for 455 ms, committed and published by two tasks at the same time; 1 s between all."""
    timings = {"plan_ms": 100, "began_ms": 1_100, "begin_ms": 5, "session_ms": 0, "job_ms": 400, "gate_ms": 50}
    metadata = replace(decode_metadata(golden(), "golden"), started_ms=0, timings=timings, tasks=(), requests={})
    after = (
        PostCommitTimes(2_575, commit_ms=20),
        PostCommitTimes(3_675, notify_ms={"a": 100}),
        PostCommitTimes(3_700, notify_ms={"b": 100}),
        PostCommitTimes(9_000, subsume_ms=400),
    )
    phases = phases_of(metadata, after)
    assert (phases["total_ms"], phases["notify_ms"], phases["airflow_ms"]) == (3_700, 125, 3_000)
    assert (phases["other_ms"], phases["subsume_ms"], measured(phases)) == (0, 400, 3_700)
    published = phases_of(metadata, after, 3_690)
    assert (published["total_ms"], published["notify_ms"], measured(published)) == (3_690, 115, 3_690)


@pytest.mark.deep
def test_the_duration_outlives_the_measurements_and_the_retention_of_a_checkpoint(tmp_path: Path) -> None:
    """It is recorded with the last confirmation, so the log has it."""
    job = CountedJob.with_epochs(tmp_path / "job", 1, {"last: 1": "last: 2"})
    job.master.savepoints.create("first")  # the log is not compacted beyond it
    job.land(range(2, 7))
    job.run(1)
    took = job.master.reports.show(2).duration_ms
    job.run(4)
    shown = job.master.reports.show(2)
    listed = next(one for one in job.master.reports.list_checkpoints() if one.checkpoint_id == 2)
    assert shown.status == listed.status == "subsumed" and took == shown.duration_ms == listed.duration_ms


def test_unreadable_stored_times_are_left_out(tmp_path: Path) -> None:
    """Nothing read from the store is trusted (DESIGN 9), and nothing depends on a measurement."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    (done,) = job.context.head().state.checkpoints
    where = (done.checkpoint_id, done.token)
    job.context.store.put(after_commit_key(*where, "subsume"), b'{"format": "milepost.times/2"}')
    later = encode(PostCommitTimes(1)).replace(b'.times/2"', b'.times/3"')
    job.context.store.put(after_commit_key(*where, "later"), later)
    assert len(read_post_commit_times(job.context, *where)) == 1
    with wording.raises(StateCorrupt):
        decode_post_commit_times(later, "key")
    assert job.master.reports.show(1).phases["commit_ms"] is not None


def test_bytes_of_a_reply_that_arrives_in_a_later_step_are_counted(tmp_path: Path) -> None:
    """A request of one step may be answered in the next, which has sent none: its bytes belong to the epoch."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner(before=lambda plan: REQUEST_COUNTER.received(7)))
    (done,) = job.context.head().state.checkpoints
    assert job.context.stored_metadata(done).requests["job"] == StoreRequests(received_bytes=7)
