"""Objects without a use are deleted, in the job's store and at the sinks; all others stay (I8, I9)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milepost.jobmaster import Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import table_target
from milepost.jobmaster.retention.garbage_lists import listed_garbage
from milepost.jobmaster.retention.subsumption import (
    confirm_and_subsume,
    delete_garbage,
    plan_during_commits,
    plan_subsumption,
    subsume_old,
)
from milepost.protocol.manifest.transaction.requests import (
    ConfirmSinksRequest,
    ForkRequest,
    PinRequest,
    TriggerRequest,
)
from milepost.protocol.records.checkpoints import Run, SubtaskKey
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import checkpoint_prefix
from milepost.protocol.records.manifest_state import TimelineRole
from milepost.storage.layout import metrics_prefix
from milepost.storage.local.store import LocalStore
from milepost_testkit.jobs.sparkless.sparkless_job import TIMEOUT_MS, SparklessJob
from milepost_testkit.stores.hooked_store import HookedStore

DAY_MS = 24 * 3_600_000


class _LaterStore(HookedStore):
    """The same objects, a day later."""

    def clock_ms(self) -> int:
        return self.inner.clock_ms() + DAY_MS


def test_staged_files_of_a_fenced_attempt_are_deleted_at_the_commit_point(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    session = Session.cli()
    loser = job.trigger(session)
    job.stage(loser, k=7)
    winner = job.rebind(session)
    assert [name.split("/")[0] for name in job.staged_files(1)] == [f"t{loser.token}"]
    job.complete(session, winner)
    assert [name.split("/")[0] for name in job.staged_files(1)] == [f"t{winner.token}"]
    job.master.epochs.notify_complete(session, 1, "table")
    assert job.master.reports.read("table").num_rows == 1


def test_an_abort_after_the_commit_point_deletes_nothing(tmp_path: Path) -> None:
    """I9: publish or discard, never both: the next session publishes what the commit promised."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    session = Session.cli()
    job.complete(session, job.trigger(session))
    staged = job.staged_files(1)
    assert job.master.epochs.abort(session, 1, "LEADER_LOST", "too late").outcome == "already_completed"
    assert job.staged_files(1) == staged != []
    job.master.epochs.notify_complete(session, 1, "table")
    assert job.master.reports.read("table").num_rows == 1


def test_files_staged_late_for_an_aborted_epoch_are_deleted_with_its_garbage(tmp_path: Path) -> None:
    """I9: the abort discards what is there; a worker that was still running may write afterwards."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    session = Session.cli()
    pending = job.trigger(session)
    job.master.epochs.abort(session, pending.checkpoint_id, "LEADER_LOST", "gone")
    job.stage(pending)
    assert job.staged_files(1)
    later = Session.cli()
    job.complete(later, job.trigger(later))
    job.master.epochs.notify_complete(later, 2, "table")
    published = job.staged_files(2)
    notices = 2  # below each token lies only what tells its worker; what it staged lies at the sink
    assert delete_garbage(_in_a_day(job), later.session_id, TIMEOUT_MS) == notices
    assert job.staged_files(1) == []
    assert job.staged_files(2) == published
    left = [entry.prefix for entry in job.context.head().state.garbage]
    assert not any(prefix.startswith(checkpoint_prefix(pending.checkpoint_id)) for prefix in left)


@pytest.mark.deep
def test_a_subsumed_checkpoint_is_one_garbage_entry_unless_later_checkpoints_use_its_objects(tmp_path: Path) -> None:
    """The manifest value stays small, however many Spark attempts left measurements."""
    job = SparklessJob.create(tmp_path)
    for number in range(2):
        job.land(f"{number}.csv")
        job.epoch()
        first = job.context.head().state.checkpoints[-1]
        for attempt in range(50):
            job.context.store.put(f"{metrics_prefix(first.checkpoint_id, first.token)}0-0-a{attempt}.json", b"{}")
    session = Session.cli()
    job.land("last.csv")
    completed = job.complete(session, job.trigger(session))
    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    before = listed_garbage(job.context.store, job.context.head().state).keys
    old = job.context.head().state.checkpoints
    assert job.master.epochs.subsume(session).subsumed == (1, 2)
    listed = listed_garbage(job.context.store, job.context.head().state).keys - before
    expected = {entry for one in old[:2] for entry in (one.metadata.key, metrics_prefix(one.checkpoint_id, one.token))}
    carried = {key for key in listed if "/contents/" in key}
    assert listed - carried == expected, "the runs of consumed objects are carried on by checkpoint 3"
    assert len(carried) == 1, "of records of the table that of checkpoint 1 was taken in by the next one"


def test_a_clock_that_goes_back_after_a_deletion_does_not_refuse_to_forget_it(tmp_path: Path) -> None:
    """Of an S3 store each server has a clock of its own: one may be behind the one that judged."""
    job = SparklessJob.create(tmp_path)
    for number in range(2):
        job.land(f"{number}.csv")
        job.epoch()
    leader = job.context.head().state.timeline().leader
    assert leader is not None
    context = _in_a_day(job)
    times = iter([context.store.clock_ms()])
    now_ms = job.context.store.clock_ms()
    context.store.clock_ms = lambda: next(times, now_ms)  # type: ignore[method-assign]
    before = job.context.head().state.garbage
    delete_garbage(context, leader.session_id, TIMEOUT_MS)
    assert len(job.context.head().state.garbage) < len(before)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("retained", "kept"),
    [
        ("{last: 2}", [5, 6]),
        ("{last: 1, hourly: 3}", [3, 4, 6]),
        ("{last: 1, daily: 2}", [4, 6]),
    ],
)
def test_each_tier_of_the_spec_keeps_the_newest_of_its_intervals(
    retained: str, kept: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six epochs: two within one hour, two in later hours of that day, two within one hour of the next day."""
    job = SparklessJob.create(tmp_path, {"retained: {last: 1}": f"retained: {retained}"})
    for number, hours in enumerate((0, 0.1, 1, 2, 24, 24.1), start=1):
        monkeypatch.setattr(LocalStore, "clock_ms", lambda _, at=hours: DAY_MS * 20_000 + int(at * DAY_MS / 24))
        job.land(f"{number}.csv")
        assert job.epoch() == number
    session = Session.cli()
    job.land("last.csv")
    job.trigger(session)
    dropped = subsume_old(job.context, session.session_id, plan_subsumption(job.context, session.session_id))
    assert [int(one.checkpoint_id) for one in job.context.head().state.checkpoints] == kept
    assert sorted([*dropped, *kept]) == [1, 2, 3, 4, 5, 6]


def test_commits_are_confirmed_even_if_the_subsumption_in_the_same_transition_is_refused(tmp_path: Path) -> None:
    """I8, I11: a reader pins what was planned to go, between plan and transition: it stays; the fact is recorded."""
    job = SparklessJob.create(tmp_path)
    for name in ("1.csv", "2.csv"):
        job.land(name)
        session = Session.cli()
        completed = job.complete(session, job.trigger(session))
        if completed.checkpoint_id == 1:
            job.master.epochs.notify_complete(session, 1, "table")
    state = job.context.head().state
    sink = job.context.sink("table")
    contents = job.context.metadata(completed).tables["table"]
    sink.move(table_target(state, completed, contents, 1))
    plan = plan_during_commits(job.context, session.session_id, state, completed)
    assert plan.request is not None and plan.request.checkpoint_ids == (1,)
    job.context.transact(PinRequest(session.session_id, "reader", CheckpointId(1), DAY_MS))
    confirms = ConfirmSinksRequest(session.session_id, completed.checkpoint_id, ("table",))
    left = confirm_and_subsume(job.context, confirms, plan)
    assert left == replace(plan, request=None)
    assert [(one.checkpoint_id, one.unconfirmed) for one in job.context.head().state.checkpoints] == [(1, ()), (2, ())]


def test_no_subsumption_is_planned_alongside_commits_while_an_older_checkpoint_waits_for_its_sink(
    tmp_path: Path,
) -> None:
    """I8: 1 could go, but the sink has yet to follow 3: its turn comes once all have confirmed."""
    job = SparklessJob.create(tmp_path)
    for number in range(1, 5):
        job.land(f"{number}.csv")
        session = Session.cli()
        completed = job.complete(session, job.trigger(session))
        if number < 4:
            job.master.epochs.notify_complete(session, number, "table")
    state = job.context.head().state
    waits = [replace(one, unconfirmed=("table",)) if one.checkpoint_id >= 3 else one for one in state.checkpoints]
    plan = plan_during_commits(job.context, session.session_id, replace(state, checkpoints=tuple(waits)), completed)
    assert (plan.request, plan.is_final) == (None, False)
    alone = plan_during_commits(job.context, session.session_id, state, completed)
    assert alone.request is not None and alone.request.checkpoint_ids == (1, 2, 3)
    job.master.epochs.notify_complete(session, 4, "table")
    assert subsume_old(job.context, session.session_id, plan) == (1, 2, 3)


def test_a_dead_backfill_does_not_block_newer_garbage_permanently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I8: all that is newer than a pending checkpoint is live; so one whose lease is over is swept on forks, too."""
    job = SparklessJob.create(tmp_path)
    job.land("1.csv")
    job.epoch()
    gone = Session.cli()
    forked = job.context.transact(ForkRequest(gone.session_id, CheckpointId(1)))
    timeline, base = forked.state.timelines[-1].timeline_id, forked.state.checkpoints[0]
    request = TriggerRequest(
        gone.session_id, gone.holder, Run(), base.checkpoint_id, base.plan, (SubtaskKey(0, 0),), TIMEOUT_MS, "", "",
        timeline=timeline,
    )  # fmt: skip
    job.context.transact(request)
    for number in range(2, 5):
        job.land(f"{number}.csv")
        job.epoch()
    session = Session.cli()
    job.land("5.csv")
    completed = job.complete(session, job.trigger(session))
    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    assert job.master.epochs.subsume(session).subsumed == (), "the replay may be alive"
    clock_ms = LocalStore.clock_ms
    monkeypatch.setattr(LocalStore, "clock_ms", lambda store: clock_ms(store) + TIMEOUT_MS)
    assert job.master.epochs.subsume(session).subsumed == (3, 4, 5)
    left = job.context.head().state.timeline(timeline)
    assert (left.role, left.pending, left.head) == (TimelineRole.FORK, None, 1), "its fork may be gone on with"


def _in_a_day(job: SparklessJob) -> JobContext:
    """The job as a process sees it whose store is a day further on."""
    context = job.context
    context.__dict__["store"] = _LaterStore(context.store)
    return context
