"""A backfill replays recorded input on a fork with today's rule; the live timeline notices nothing before the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.codec.records import to_json
from milepost.epoch.plan import EpochPlan
from milepost.errors import (
    Busy,
    CheckpointError,
    CommitConflict,
    Fenced,
    InvalidRequest,
    JobNotRunnable,
    NotFound,
    ProtocolViolation,
    SourceChanged,
    SubtaskDeclined,
)
from milepost.jobmaster import Session
from milepost.jobmaster.backfill.consumed_input import ConsumedInput, check_equal, consumed_by
from milepost.jobmaster.backfill.forks import open_fork
from milepost.jobmaster.backfill.plan import prepare, request_of
from milepost.jobmaster.backfill.plan_document import KeptAhead
from milepost.jobmaster.backfill.replay import lineage_since, recorded_ranges, replay_record
from milepost.jobmaster.reports.health.status import Status
from milepost.jobspec.graph.compatibility import UNCHANGED
from milepost.protocol.exchange.acknowledgements import Acknowledgement, SubtaskAnswer
from milepost.protocol.manifest import decisions
from milepost.protocol.manifest.transaction.requests import FastForwardRequest
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.manifest_state import JobStatus, TimelineRole
from milepost.protocol.retention.ancestry import open_forks
from milepost.state.buffers.buffers import Buffer, encode_rows
from milepost.state.buffers.channel_state import encode_channel_state
from milepost.state.layers.key_groups import key_group_range
from milepost.storage.layout import channel_prefix
from milepost.storage.open import open_store
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.backfill_job import BackfillJob, mortal_session
from milepost_testkit.runners.sparkless_runner import SparklessRunner

DAYS = 5


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> BackfillJob:
    """Five days with the wrong rule; the third is the first one that it spoils. Only to be copied."""
    return BackfillJob.create(tmp_path_factory.mktemp("wrong") / "job", DAYS)


@pytest.fixture
def job(wrong: BackfillJob, tmp_path: Path) -> BackfillJob:
    """A copy of it, with the rule corrected and no epoch run since."""
    copied = wrong.copy(tmp_path / "job")
    copied.fix()
    return copied


def at_epoch(number: int, act: Callable[[], object]) -> SparklessRunner:
    """A data plane that lets something happen before its epoch of that number begins, counted from 1."""
    runner = SparklessRunner()

    def before(plan: EpochPlan) -> None:
        if len(runner.plans) == number:
            act()

    runner.before = before
    return runner


@pytest.mark.deep
def test_the_table_changes_at_the_end_all_at_once_and_equals_the_oracle(job: BackfillJob) -> None:
    """DESIGN 6: replay in recorded order with today's code; fast-forward is one transition that the sinks follow."""
    runner = SparklessRunner(after=lambda plan: job.assert_table(DAYS, fixed=False))
    plan = job.master.backfills.plan("2026-03-03")
    assert (plan.fork_point, plan.head, plan.epochs, plan.objects) == (2, 5, 3, 3)
    assert plan.sinks["table"].rows_now == 5 and plan.sinks["table"].rows_at_fork_point == 2
    assert job.state.version == plan_version(job), "a plan changes nothing"

    result = job.backfill(runner)

    assert (result.outcome, result.fork_point, result.from_timeline) == ("fast_forwarded", 2, "main")
    assert [item.name for plan in runner.plans for item in plan.inputs] == ["rows"] * 3
    read = [[obj.key for obj in plan.inputs[0].objects] for plan in runner.plans]
    assert read == [["day-03.csv"], ["day-04.csv"], ["day-05.csv"]]
    job.assert_table(DAYS, fixed=True)
    state = job.state
    assert state.live == result.timeline and state.timeline().head == result.checkpoint_id == 8
    assert {one.timeline_id: one.role for one in state.timelines} == {
        "main": TimelineRole.ABANDONED,
        state.live: TimelineRole.LIVE,
    }
    assert job.next_day(6) == 9
    job.assert_table(6, fixed=True)


def plan_version(job: BackfillJob) -> int:
    return job.small.context.head().version


@pytest.mark.deep
def test_a_backfill_can_be_rolled_back(job: BackfillJob) -> None:
    """The timeline that it left is still there, tables included."""
    job.backfill()
    roll_back(job.master, DAYS)
    job.assert_table(DAYS, fixed=False)
    assert job.next_day(6) == 9


@pytest.mark.long
def test_a_backfill_can_be_undone_while_the_old_line_is_retained(tmp_path: Path) -> None:
    """I8: the epochs that it replays take no place in the retention of the line that it replaced."""
    job = BackfillJob.create(tmp_path / "job", DAYS, {"last: 50": "last: 3"})
    job.fix()
    assert len(job.backfill(from_=None, from_checkpoint=0).epochs) == DAYS
    assert [job.next_day(6), job.next_day(7)] == [11, 12]
    assert {DAYS, 10, 11, 12} <= retained(job)

    roll_back(job.master, DAYS)
    job.assert_table(DAYS, fixed=False)
    assert job.epoch().checkpoint_id == 13
    job.assert_table(6, fixed=False, fixed_from=6)

    roll_back(job.master, 12)
    job.assert_table(7, fixed=True)
    for day in (8, 9, 10):
        job.next_day(day)
    assert retained(job) == {14, 15, 16}, "what was left stays no longer than the live line needs"


def retained(job: BackfillJob) -> set[int]:
    return {int(one.checkpoint_id) for one in job.state.checkpoints}


@pytest.mark.deep
@pytest.mark.parametrize(
    ("from_", "fork_point"),
    [("2026-03-02T23:00:01", 2), ("2026-03-02T23:00", 1), ("2026-03-02T22:00+00:00", 1), ("2026-01-01", 0)],
)
def test_the_fork_point_has_consumed_no_row_of_the_range(job: BackfillJob, from_: str, fork_point: int) -> None:
    """Checkpoint 2 read a row of 23:00; its watermark of 21:00 does not say so, its watermark delay does."""
    assert job.master.backfills.plan(from_).fork_point == fork_point


@pytest.mark.long
def test_rows_too_far_ahead_do_not_move_the_fork_point_and_the_plan_says_what_replays_them(tmp_path: Path) -> None:
    """A date of 2099 that checkpoint 2 has read: it is of any later range, and its watermark passes it over."""
    job = BackfillJob.create(tmp_path, 1)
    path = job.land(2)
    path.write_text(path.read_text() + "7,99,2099-01-01T00:00:00Z\n")
    job.epoch()
    for day in range(3, 6):
        job.next_day(day)
    plan = job.master.backfills.plan("2026-03-04")
    assert plan.fork_point >= 2
    assert plan.kept_ahead == (KeptAhead("rows", "2099-01-01T00:00:00+00:00", since_checkpoint=2, from_checkpoint=1),)
    wording.matches("plan", [line for line in plan.text if "--from-checkpoint 1" in line])
    before = job.master.backfills.plan("2026-01-01")
    assert (before.fork_point, before.kept_ahead) == (0, ())
    job.fix()
    job.backfill(from_=None, from_checkpoint=1)
    totals = {row["k"]: row["total"] for row in job.table().to_pylist()}
    assert 99 not in totals.values() and totals[7] is None


@pytest.mark.deep
def test_a_backfill_from_the_empty_state_needs_no_retained_checkpoint(job: BackfillJob) -> None:
    """Checkpoint 0 always is a fork point, and input records are never subsumed: also two at a time."""
    job.edit("last: 50", "last: 1")
    job.next_day(6)
    assert [int(one.checkpoint_id) for one in job.state.checkpoints] == [6]
    runner = SparklessRunner()
    result = job.backfill(runner, ranges_per_epoch=4)
    assert result.fork_point == 0
    assert [len(plan.inputs[0].objects) for plan in runner.plans] == [4, 2]
    job.assert_table(6, fixed=True)


def test_a_corrected_rule_is_reported_with_what_it_does_not_change(job: BackfillJob) -> None:
    """No state depends on it, so it stops nothing, and what was read with the old one stays as it is."""
    (told,) = [row for row in job.master.reports.compatibility() if row["detail"] != UNCHANGED]
    assert (told["uid"], told["outcome"], told["verdict"]) == ("source rows", "changed", "compatible")
    wording.matches("compatibility", told["detail"])
    wording.matches("plan", [line for line in job.master.backfills.plan("2026-03-03").text if "source rows" in line])
    job.next_day(6)
    assert {row["detail"] for row in job.master.reports.compatibility()} == {UNCHANGED}, (
        "the newest epoch was made with it"
    )


@pytest.mark.deep
def test_the_plan_names_a_table_that_does_not_follow(tmp_path: Path) -> None:
    sink = "  - {name: extra, input: rows, format: parquet, path: ../lake/extra, mode: append}\n"
    job = BackfillJob.create(tmp_path, 2, {"sinks:\n": f"sinks:\n{sink}"})
    job.edit(sink, "")
    plan = job.master.backfills.plan(from_checkpoint=1)
    assert plan.skipped_sinks == ("extra",)
    wording.matches("plan", [line for line in plan.text if "sink extra" in line])


@pytest.mark.deep
def test_what_a_head_cannot_continue_a_backfill_from_the_empty_state_makes_anew(job: BackfillJob) -> None:
    """As the refusal says: other aggregates, and even another number of key groups."""
    job.edit("total: sum(v)}", "total: sum(v), most: max(v)}")
    job.edit("checkpointing: {", "checkpointing: {max_parallelism: 64, ")
    with wording.raises(InvalidRequest) as refused:
        job.epoch()
    assert "milepost backfill small --from-checkpoint 0" in str(refused.value.hint)
    job.backfill(from_=None, from_checkpoint=0)
    job.assert_table(DAYS, fixed=True)
    assert job.master.reports.read("table").column_names == ["k", "rows", "total", "most"]
    assert job.next_day(6) == 11
    job.assert_table(6, fixed=True)


@pytest.mark.deep
def test_a_checkpoint_may_be_named_as_the_fork_point(job: BackfillJob) -> None:
    assert job.backfill(from_=None, from_checkpoint=1).fork_point == 1
    job.assert_table(DAYS, fixed=True)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"from_": None}, InvalidRequest),
        ({"from_": "2026-03-03", "from_checkpoint": 1}, InvalidRequest),
        ({"from_": "March"}, InvalidRequest),
        ({"from_": "2026-03-03", "to": "2026-03-03"}, InvalidRequest),
        ({"from_": None, "from_checkpoint": 9}, NotFound),
        ({"from_": "2027-01-01"}, InvalidRequest),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    job: BackfillJob, options: dict[str, object], kind: type[CheckpointError]
) -> None:
    before = plan_version(job)
    with wording.raises(kind):
        job.master.backfills.plan(**options)  # type: ignore[arg-type]
    assert plan_version(job) == before


@pytest.mark.deep
def test_the_schedule_goes_on_meanwhile_and_the_backfill_catches_up(job: BackfillJob) -> None:
    """Main completes an epoch during the first replayed one: it is replayed, too, before the fast-forward."""
    heads: list[int] = []
    runner = at_epoch(1, lambda: heads.append(job.next_day(6)))
    done = job.backfill(runner)
    assert len(runner.plans) == 4
    job.assert_table(6, fixed=True)
    assert [done.previous_head] == heads, "the head when the fork became live, not that of the plan"
    roll_back(job.master, done.previous_head)
    assert job.master.reports.job_state().timeline != done.timeline


@pytest.mark.deep
def test_a_trigger_during_the_last_stretch_is_busy_and_goes_on_after_it(job: BackfillJob) -> None:
    """The freeze keeps the schedule from triggering; after the fast-forward there is none."""
    refused: list[Busy] = []

    def scheduled() -> None:
        with wording.raises(Busy) as busy:
            job.next_day(6)
        refused.append(busy.value)

    job.backfill(at_epoch(3, scheduled))
    assert len(refused) == 1
    job.assert_table(DAYS, fixed=True)
    assert job.epoch().checkpoint_id == 9
    job.assert_table(6, fixed=True)


@pytest.mark.long
def test_an_epoch_that_runs_when_the_live_timeline_freezes_may_end_and_is_replayed(
    job: BackfillJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A freeze stops triggers, not what is pending; the backfill waits for it."""
    job.land(6)
    session = Session.cli()
    pending = job.small.trigger(session)
    waited: list[float] = []

    def end_it(seconds: float) -> None:
        waited.append(seconds)
        job.master.epochs.run_epoch(session, pending.checkpoint_id, SparklessRunner())
        job.master.epochs.complete(session, pending.checkpoint_id)  # not published: the sinks follow the fork instead

    told: list[str] = []
    monkeypatch.setattr("milepost.jobmaster.backfill.backfill_run.sleep", end_it)
    back_fill(job.master, SparklessRunner(), "2026-03-03", progress=told.append)
    assert len(waited) == 1
    wording.matches("backfill", told)
    job.assert_table(6, fixed=True)


def test_deleted_or_changed_objects_are_listed_and_nothing_is_changed(job: BackfillJob) -> None:
    landing = job.small.folder / "landing"
    (landing / "day-03.csv").unlink()
    (landing / "day-05.csv").write_text("k,v,at\n1,1,2026-03-05T00:00:00Z\n")
    before = plan_version(job)
    with wording.raises(SourceChanged) as refused:
        job.backfill()
    assert re.findall(r"day-\d+\.csv", refused.value.message) == ["day-03.csv", "day-05.csv"]
    assert plan_version(job) == before
    job.edit("limits_per_epoch:", "on_change: ignore\n    limits_per_epoch:")
    assert job.next_day(6) == 6, "the live timeline continues"


@pytest.mark.long
def test_an_object_that_goes_away_during_the_replay_is_not_skipped(job: BackfillJob) -> None:
    """`on_missing: skip` is for new input: a replay reads what was read, or fails; then it goes on where it was."""
    job.edit("limits_per_epoch:", "on_missing: skip\n    limits_per_epoch:")
    gone = job.small.folder / "landing" / "day-04.csv"
    kept = gone.rename(gone.with_suffix(".kept"))
    kept.rename(gone)
    with mortal_session() as session, wording.raises(SourceChanged):
        job.backfill(at_epoch(2, lambda: gone.rename(kept)), session=session)
    kept.rename(gone)
    job.assert_table(DAYS, fixed=False)
    runner = SparklessRunner()
    job.backfill(runner)
    assert len(runner.plans) == 2, "day 3 is not replayed again"
    job.assert_table(DAYS, fixed=True)


@pytest.mark.deep
def test_what_an_epoch_skipped_is_not_replayed_with_it(tmp_path: Path) -> None:
    """The consumed set says which planned objects were read: one that was missing, and came back, is read once."""
    skip = {"limits_per_epoch: {max_files: 1}": "on_missing: skip\n    limits_per_epoch: {max_files: 2}"}
    job = BackfillJob.create(tmp_path / "job", 0, skip)
    job.land(1)
    away = job.land(3)
    body = away.with_suffix(".away")
    job.epoch(at_epoch(1, lambda: away.rename(body)))
    body.rename(away)
    job.epoch()
    job.assert_table([1, 3], fixed=False)
    job.fix()
    runner = SparklessRunner()
    job.backfill(runner, from_=None, from_checkpoint=0)
    assert [[obj.key for obj in plan.inputs[0].objects] for plan in runner.plans] == [["day-01.csv"], ["day-03.csv"]]
    job.assert_table([1, 3], fixed=True)


@pytest.mark.deep
def test_a_failed_epoch_leaves_the_live_timeline_as_it_was_and_counts_for_nothing(job: BackfillJob) -> None:
    """A decline on the fork neither fails the job nor moves its tables; the fork goes on where it was."""

    def decline() -> None:
        raise SubtaskDeclined("subtask 0 declined")

    with mortal_session() as session, wording.raises(SubtaskDeclined) as failed:
        job.backfill(at_epoch(2, decline), session=session)
    state = job.state
    assert (state.live, state.status, state.failures.consecutive) == ("main", JobStatus.RUNNING, 0)
    assert state.timeline().frozen is None
    assert job.next_day(6) == 8, "ids are never reused: 6 was the fork's, 7 was aborted"
    job.assert_table(6, fixed=False, fixed_from=6)
    plan = job.master.backfills.plan("2026-03-03")
    assert plan.continues == failed.value.details["fork"] and plan.replayed_ranges == 1
    job.backfill()
    job.assert_table(6, fixed=True)


@pytest.mark.deep
def test_ctrl_c_in_the_last_stretch_thaws_the_live_timeline(job: BackfillJob) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.backfill(at_epoch(3, interrupt))
    assert job.state.timeline().frozen is None
    assert job.next_day(6) == 9
    job.assert_table(6, fixed=False, fixed_from=6)


@pytest.mark.deep
def test_a_changed_spec_begins_a_new_fork_and_disposes_of_the_one_left_behind(job: BackfillJob) -> None:
    """A fork holds the results of one code and one spec, which are never mixed."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    with mortal_session() as session, pytest.raises(KeyboardInterrupt):
        job.backfill(at_epoch(2, interrupt), session=session)
    left = open_forks(job.state)[0].timeline_id
    job.edit('["99"]', '["99", "NA"]')
    told = job.master.backfills.plan("2026-03-03")
    assert told.gives_up == (left,) and told.continues is None
    wording.matches("plan", [line for line in told.text if left in line])
    runner = SparklessRunner()
    job.backfill(runner)
    assert len(runner.plans) == 3
    assert left not in {one.timeline_id for one in open_forks(job.state)}
    job.assert_table(DAYS, fixed=True)


@pytest.mark.deep
def test_of_two_forks_of_one_backfill_the_one_that_got_further_goes_on(job: BackfillJob) -> None:
    """Two processes may open one each at the same moment; what either has replayed is not replayed once more."""

    def decline() -> None:
        raise SubtaskDeclined("subtask 0 declined")

    plan = prepare(job.small.context, request_of("2026-03-03", None, None))
    with mortal_session() as session:
        forks = [open_fork(job.small.context, session, plan) for _ in range(2)]
        for _ in range(2):
            with pytest.raises(SubtaskDeclined) as failed:
                job.backfill(at_epoch(2, decline), session=session)
            assert failed.value.details["fork"] in forks
    shown = job.master.backfills.plan("2026-03-03")
    assert (shown.continues, shown.replayed_ranges) == (failed.value.details["fork"], 2)
    job.backfill()
    job.assert_table(DAYS, fixed=True)


@pytest.mark.long
def test_a_second_backfill_of_the_same_kind_is_busy(job: BackfillJob) -> None:
    busy: list[Busy] = []

    def again() -> None:
        with wording.raises(Busy) as refused:
            job.backfill()
        busy.append(refused.value)

    job.backfill(at_epoch(2, again))
    assert len(busy) == 1
    job.assert_table(DAYS, fixed=True)


def airflow(run_id: str) -> Session:
    return Session.airflow("small__operate", run_id, "manual", None)


@pytest.mark.long
def test_another_airflow_run_goes_on_with_what_a_failed_one_left_and_waits_for_a_running_one(job: BackfillJob) -> None:
    """Nobody can prove an Airflow task dead; what it left says enough."""
    refused: list[Busy] = []

    def again_then_fail() -> None:
        with wording.raises(Busy) as busy:
            job.backfill(session=airflow("two"))
        refused.append(busy.value)
        raise SubtaskDeclined("subtask 0 declined")

    with pytest.raises(SubtaskDeclined):
        job.backfill(at_epoch(2, again_then_fail), session=airflow("one"))
    assert len(refused) == 1
    runner = SparklessRunner()
    job.backfill(runner, session=airflow("two"))
    assert len(runner.plans) == 2
    job.assert_table(DAYS, fixed=True)


@pytest.mark.deep
def test_status_names_an_unfinished_backfill_and_what_to_type(job: BackfillJob) -> None:
    """Running, then killed; what it says to type goes on with it."""
    told: list[Status] = []
    runner = SparklessRunner()

    def die(plan: EpochPlan) -> None:
        told.append(job.master.reports.status())
        if len(runner.plans) == 2:
            raise KeyboardInterrupt

    runner.before = die
    with mortal_session() as session, pytest.raises(KeyboardInterrupt):
        job.backfill(runner, session=session)
    (running,) = told[0].unfinished_backfills
    fork = running.fork
    assert (running.working, running.fork_point, running.head, running.pending) == (True, 2, None, 6)
    wording.matches("status", running.next_step)
    assert running.session_id == session.session_id
    assert told[0].frozen is None
    status = job.master.reports.status()
    (left,) = status.unfinished_backfills
    assert (left.working, left.head, left.pending) == (False, 6, None)
    assert "milepost backfill small --from-checkpoint 2" in left.next_step
    wording.matches("status", left.next_step)
    assert status.exit_code == 0
    wording.matches("status", status.next_step)
    spec = job.small.folder / "config" / "small.yaml"
    told = milepost("status", spec).stdout
    typed = left.next_step.replace("backfill small", f"backfill {spec}")
    assert typed in told
    wording.matches("status", told, replace=wording.LAG)
    ran = SparklessRunner()
    assert job.backfill(ran, None, from_checkpoint=2).timeline == fork
    assert len(ran.plans) == 2, "the range that was replayed is not replayed again"
    status = job.master.reports.status()
    assert status.unfinished_backfills == ()
    assert (status.job_status, status.waits_for) == ("running", None)
    told = milepost("status", job.small.folder / "config" / "small.yaml").stdout
    wording.matches("status", told, replace=wording.LAG)


@pytest.mark.deep
def test_the_fork_point_is_kept_while_its_fork_is_open(job: BackfillJob) -> None:
    """What status says to type must work however long the schedule went on meanwhile."""
    job.edit("last: 50", "last: 1")

    def interrupt() -> None:
        raise KeyboardInterrupt

    with mortal_session() as session, pytest.raises(KeyboardInterrupt):
        job.backfill(at_epoch(2, interrupt), session=session)
    job.next_day(6)
    job.next_day(7)
    (left,) = job.master.reports.status().unfinished_backfills
    ran = SparklessRunner()
    assert job.backfill(ran).timeline == left.fork
    assert len(ran.plans) == 4
    job.assert_table(7, fixed=True)
    job.next_day(8)
    assert 2 not in [int(one.checkpoint_id) for one in job.state.checkpoints], "and no longer"


@pytest.mark.deep
def test_status_says_who_has_frozen_the_live_timeline(job: BackfillJob) -> None:
    """Otherwise it would be unclear why every trigger is busy."""
    session = Session.cli()
    told: list[Status] = []
    job.backfill(at_epoch(3, lambda: told.append(job.master.reports.status())), session=session)
    assert told[0].frozen.session_id == session.session_id
    assert job.master.reports.status().frozen is None


@pytest.mark.deep
def test_of_two_different_backfills_the_first_to_end_wins_and_the_other_is_refused(job: BackfillJob) -> None:
    with wording.raises(CommitConflict):
        job.backfill(at_epoch(2, lambda: job.backfill(ranges_per_epoch=3)))
    job.assert_table(DAYS, fixed=True)
    assert len(open_forks(job.state)) == 1
    job.master.backfills.dispose()
    assert open_forks(job.state) == ()
    assert job.next_day(6) == 9


@pytest.mark.long
def test_a_rollback_meanwhile_refuses_the_fast_forward(job: BackfillJob) -> None:
    """The live timeline is another one: the tables stay where the rollback put them."""
    with wording.raises(CommitConflict) as refused:
        job.backfill(at_epoch(3, lambda: roll_back(job.master, 4)))
    assert refused.value.exit_code == 4
    job.assert_table(4, fixed=False)


@pytest.mark.long
def test_a_fork_that_is_disposed_of_meanwhile_fences_its_backfill(job: BackfillJob) -> None:
    with pytest.raises(Fenced):
        job.backfill(at_epoch(2, job.master.backfills.dispose))
    assert open_forks(job.state) == ()
    job.assert_table(DAYS, fixed=False)
    assert job.next_day(6) == 8


def test_a_job_that_has_ended_is_not_backfilled(job: BackfillJob) -> None:
    job.master.savepoints.cancel()
    with wording.raises(JobNotRunnable):
        job.master.backfills.plan("2026-03-03")


@pytest.mark.long
def test_a_job_that_is_canceled_at_the_last_moment_keeps_its_head_and_its_tables(job: BackfillJob) -> None:
    """The fork stays; once the job is started again, the same backfill goes on with it."""

    def cancel_before(step: str) -> None:
        if step == "fast-forward":
            job.master.savepoints.cancel(savepoint=True)

    with wording.raises(JobNotRunnable):
        job.backfill(progress=cancel_before)
    assert job.state.timeline().head == DAYS
    job.assert_table(DAYS, fixed=False)
    job.master.restores.start()
    ran = SparklessRunner()
    assert job.backfill(ran).outcome == "fast_forwarded"
    assert ran.plans == [], "nothing is replayed twice"
    job.assert_table(DAYS, fixed=True, fixed_from=3)


def test_the_last_epoch_of_a_drained_job_is_not_replayed_past(job: BackfillJob) -> None:
    """It ended event time; the message says what to do instead."""
    job.master.epochs.run(Session.cli(), SparklessRunner(), drain=True)
    job.master.restores.start()
    with wording.raises(InvalidRequest) as refused:
        job.master.backfills.plan("2026-03-03")
    assert "milepost rollback small --to 5" in refused.value.hint


def test_a_source_that_the_spec_dropped_is_not_left_out_silently(job: BackfillJob) -> None:
    job.edit("  rows:\n", "  others:\n")
    job.edit("inputs: [rows]", "inputs: [others]")
    with wording.raises(InvalidRequest):
        job.master.backfills.plan("2026-01-01")


def test_a_replay_whose_recorded_input_does_not_add_up_to_the_head_is_refused(job: BackfillJob) -> None:
    """What the head has and no record names, and what records name and the head lacks: both are refused."""
    context, live = job.small.context, job.state.timeline().head
    point = CheckpointId(2)
    base, head = (consumed_by(context, context.base_metadata(job.state, one)) for one in (point, live))
    lineage = lineage_since(context, live, point)
    assert [one.count for one in recorded_ranges(context, lineage, None, base, head)] == [1, 1, 1]
    more = ConsumedInput({**head["rows"].by, ("day-09.csv", "etag", 9, 5_000): 4})
    with wording.raises(InvalidRequest):
        recorded_ranges(context, lineage, None, base, {"rows": more})
    with wording.raises(InvalidRequest):
        recorded_ranges(context, lineage, None, base, {**head, "more": ConsumedInput({("a", "b", 1, 1): 4})})
    with wording.raises(InvalidRequest):
        recorded_ranges(context, lineage[1:], None, base, head)
    (first,) = (version for version, at in base["rows"].by.items() if at == 1)
    less = ConsumedInput({version: at for version, at in head["rows"].by.items() if version != first})
    with wording.raises(InvalidRequest):
        recorded_ranges(context, lineage, None, base, {"rows": less})
    with wording.raises(InvalidRequest):
        recorded_ranges(context, lineage, None, base, {"rows": replace(less, horizon_ms=first[-1])})
    assert recorded_ranges(context, lineage, None, base, {"rows": replace(less, horizon_ms=first[-1] + 1)})


@pytest.mark.long
def test_a_restored_checkpoint_is_a_fork_point_that_no_replay_passes(job: BackfillJob) -> None:
    """No recorded input leads to a restored or bootstrapped checkpoint: a replay from before it would lose it."""
    job.master.savepoints.create("second", at=2)
    job.master.savepoints.cancel()
    restored = job.master.restores.start("second").head
    job.edit('["99"]', "[]")
    for _ in range(3):
        job.epoch()
    job.assert_table(DAYS, fixed=False)
    job.fix()
    with wording.raises(InvalidRequest) as refused:
        job.master.backfills.plan("2026-03-01")
    assert str(restored) in str(refused.value)
    assert refused.value.hint.endswith(f"--from-checkpoint {restored}")
    assert job.backfill().fork_point == restored
    job.assert_table(DAYS, fixed=True)


def test_heads_that_have_not_consumed_the_same_are_never_switched() -> None:
    """The last look before the fast-forward, source by source: whatever went wrong before it."""
    day = ConsumedInput({("day-03.csv", "etag", 9, 5_000): 3})
    other = ConsumedInput({("day-03.csv", "another", 9, 5_000): 7})
    check_equal({"rows": day, "empty": ConsumedInput()}, {"rows": replace(day)})
    with wording.raises(CommitConflict):
        check_equal({"rows": day}, {"rows": other})
    with wording.raises(CommitConflict):
        check_equal({"rows": day}, {"rows": day, "more": other})


def test_what_the_live_timeline_may_have_forgotten_is_no_difference_what_the_fork_lacks_is() -> None:
    day, nothing = {("day-03.csv", "etag", 9, 5_000): 3}, ConsumedInput()
    check_equal({"rows": ConsumedInput(horizon_ms=5_001)}, {"rows": ConsumedInput(day)})
    with wording.raises(CommitConflict):
        check_equal({"rows": ConsumedInput(horizon_ms=5_000)}, {"rows": ConsumedInput(day)})
    with wording.raises(CommitConflict):
        check_equal({"rows": ConsumedInput(day, 5_001)}, {"rows": replace(nothing, horizon_ms=9_000)})


NO_ROWS = Buffer(
    "latest",
    "rows",
    None,
    None,
    encode_rows(pa.schema([("k", pa.int64()), ("v", pa.int64())]).empty_table()),
)


def leaves_in_flight(epoch: int) -> SparklessRunner:
    """A data plane whose epoch of that number leaves a buffer in flight."""
    runner = SparklessRunner()

    def cut(answers: tuple[SubtaskAnswer, ...]) -> tuple[SubtaskAnswer, ...]:
        plan, last = runner.plans[-1], answers[-1]
        if plan.epoch != epoch:
            return answers
        assert isinstance(last, Acknowledgement)
        file = encode_channel_state(
            {"latest": [NO_ROWS]},
            directory=channel_prefix(plan.checkpoint_id, plan.token),
            key_groups=key_group_range(128, 2, 1),
            signatures=plan.input_signatures,
        )
        assert file is not None
        open_store(plan.job_store).put(file.key, file.body)
        operators: Any = last.payload["operators"]
        latest = {**operators["latest"], "channel": to_json(file.handles["latest"]), "unaligned": True}
        return (*answers[:-1], replace(last, payload={**last.payload, "operators": {"latest": latest}}))

    runner.answers = cut
    return runner


@pytest.mark.deep
def test_while_too_much_is_in_flight_a_fork_replays_nothing_new(job: BackfillJob) -> None:
    """As on the live timeline: what is in flight is worked off first, and no range is lost by it."""
    job.edit("timeout: 10m", "timeout: 10m, aligned_timeout: 5m, max_in_flight: 9B")
    runner = leaves_in_flight(3)
    result = job.backfill(runner)
    read = [[obj.key for obj in plan.inputs[0].objects] for plan in runner.plans]
    assert read == [["day-03.csv"], [], ["day-04.csv"], ["day-05.csv"]]
    assert job.master.reports.show(result.epochs[0].checkpoint_id).unaligned is True
    shown = job.master.reports.show(result.epochs[1].checkpoint_id)
    assert shown.held_back is not None and str(NO_ROWS.size) in shown.held_back
    wording.matches("input", shown.held_back, replace=wording.SIZES)
    job.assert_table(DAYS, fixed=True)


@pytest.mark.long
def test_rows_in_flight_at_the_fork_point_that_the_spec_cannot_take_are_refused_with_where_to_fork(
    tmp_path: Path,
) -> None:
    job = BackfillJob.create(tmp_path / "job", 1)
    job.land(2)
    job.epoch(leaves_in_flight(2))
    job.next_day(3)
    job.fix()
    job.edit("v: int64", "v: int32")
    with wording.raises(InvalidRequest) as refused:
        job.master.backfills.plan("2026-03-03")
    assert str(NO_ROWS.size) in str(refused.value)
    job.backfill(from_=None, from_checkpoint=1)
    job.assert_table(3, fixed=True)


def test_the_last_look_before_the_switch_does_not_rely_on_what_was_left_to_replay(
    job: BackfillJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I14: whatever went wrong before, heads that have not consumed the same are not switched."""
    monkeypatch.setattr("milepost.jobmaster.backfill.backfill_run.left_to_replay", lambda ranges, base, tip: ())
    with wording.raises(CommitConflict):
        job.backfill()
    assert job.state.live == "main"
    job.assert_table(DAYS, fixed=False)


def test_a_fork_that_comes_no_closer_ends_the_backfill(job: BackfillJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch that replays nothing and works nothing off would be followed by the same one, indefinitely."""
    monkeypatch.setattr(
        "milepost.jobmaster.backfill.backfill_run.replay_record",
        lambda now, *others: replay_record((), *others),
    )
    with wording.raises(ProtocolViolation):
        job.backfill()
    assert job.state.live == "main" and job.state.timeline().frozen is None
    job.assert_table(DAYS, fixed=False)


def test_a_switch_that_is_refused_without_progress_is_not_retried_indefinitely(
    job: BackfillJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CommitConflict("planned")

    monkeypatch.setitem(decisions._DECISIONS, FastForwardRequest, refuse)
    with wording.raises(CommitConflict):
        job.backfill()
    assert job.state.live == "main" and job.state.timeline().frozen is None
