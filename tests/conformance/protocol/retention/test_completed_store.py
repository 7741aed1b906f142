"""Completed checkpoints of a job: retained in the manifest, dropped by policy, never skipped (I2, I5, I8).

Flink has a completed-checkpoint store for them. Here they are part of the manifest value: adding one is the commit
point, and dropping one is a later transition by the leader.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.codec.packing import unpack
from milepost.codec.records import decode, encode
from milepost.errors import (
    CommitOutcomeUnknown,
    Fenced,
    InvalidRequest,
    JobNotRunnable,
    ProtocolViolation,
    StateCorrupt,
)
from milepost.jobmaster import Session
from milepost.jobmaster.retention.garbage_lists import listed_garbage
from milepost.jobmaster.retention.subsumption import plan_subsumption, subsume_old
from milepost.protocol.log.entry_codec import decode_entry, encode_entry
from milepost.protocol.log.log_entries import LogEntry
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.manifest.upkeep.pins import live_pins
from milepost.protocol.records.checkpoints import CompletedCheckpoint, ObjectHandle
from milepost.protocol.records.ids import CheckpointId, SessionId
from milepost.protocol.records.layout import MANIFEST_PREFIX
from milepost.protocol.records.manifest_state import JobStatus, ManifestState, Savepoint
from milepost.protocol.retention.retention import RetentionPolicy, plan_retention, select_checkpoints, subsumable
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import A, B, JobLog, assert_refused, epochs
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.stores.faulty_store import Effect, Fault, at
from milepost_testkit.stores.job_stores import break_store


def ids(checkpoints: tuple[CompletedCheckpoint, ...]) -> list[int]:
    return [int(checkpoint.checkpoint_id) for checkpoint in checkpoints]


def with_savepoints(state: ManifestState, *savepoints: int) -> ManifestState:
    """The same state with these checkpoints as savepoints."""
    document = ObjectHandle("savepoint.json", 100, "d" * 64)
    listed = (Savepoint(f"saved-{one}", CheckpointId(one), None, document, 0) for one in savepoints)
    return replace(state, savepoints=tuple(listed))


def remaining_ids(state: ManifestState, last: int) -> list[int]:
    """The checkpoints that remain after everything droppable has been dropped."""
    gone = set(subsumable(state, RetentionPolicy(last)))
    return [one for one in ids(state.checkpoints) if one not in gone]


@pytest.mark.parametrize("last", [0, -1])
def test_a_policy_that_keeps_no_checkpoint_is_refused(last: int) -> None:
    """At least one is retained, whatever the spec says.

    Case: CompletedCheckpointStoreTest.testExceptionOnNoRetainedCheckpoints
    """
    with wording.raises(InvalidRequest):
        RetentionPolicy(last)


def test_each_completed_checkpoint_is_at_once_the_newest() -> None:
    """The head after the commit point is the checkpoint that was completed by it.

    Case: CompletedCheckpointStoreTest.testAddAndGetLatestCheckpoint
    Case: CompletedCheckpointStoreTest.testAcquireLatestCompletedCheckpointId
    """
    log = JobLog()
    for expected in (1, 2):
        log.epoch(A)
        head = log.state.head()
        assert head is not None
        assert (head.checkpoint_id, log.state.timeline().head) == (expected, expected)


def test_more_than_the_retained_ones_are_dropped_oldest_first() -> None:
    """Once the policy is applied exactly so many stay, and each dropped one leaves in the order of its id.

    Case: CompletedCheckpointStoreTest.testAddCheckpointMoreThanMaxRetained
    """
    log = epochs(1)
    for added in range(2, 6):
        log.epoch(A)
        due = subsumable(log.state, RetentionPolicy(1))
        assert due == (added - 1,)
        assert isinstance(log.subsume(A, due), Transition)
        assert ids(log.state.checkpoints) == [added]


def test_a_job_without_a_completed_checkpoint_has_no_head_and_drops_nothing() -> None:
    """Empty is a state, not an error.

    Case: CompletedCheckpointStoreTest.testEmptyState
    """
    log = JobLog()
    assert (log.state.head(), log.state.checkpoints, log.state.timeline().head) == (None, (), 0)
    assert subsumable(log.state, RetentionPolicy(1)) == ()
    log.trigger(A)
    answer = log.subsume(A, (1,))
    assert isinstance(answer, AlreadyDone)
    assert answer.outcome is Outcome.NOTHING_TO_SUBSUME


def test_all_retained_checkpoints_are_listed_in_the_order_of_their_ids() -> None:
    """I5: ids rise; what a reader gets is sorted.

    Case: CompletedCheckpointStoreTest.testGetAllCheckpoints
    """
    assert ids(epochs(4).state.checkpoints) == [1, 2, 3, 4]


def test_checkpoints_read_back_are_sorted_or_refused(tmp_path: Path) -> None:
    """I5: the manifest's bytes are checked when read: an order that cannot have been written is corrupt.

    Case: DefaultCompletedCheckpointStoreTest.testRecoverSortedCheckpoints
    """
    job = job_with_epochs(tmp_path, 3)
    assert ids(job.context.head().state.checkpoints) == [1, 2, 3]
    head = job.context.head()
    entry = job.context.log.entry(head.version)
    assert isinstance(entry, LogEntry)
    document = json.loads(encode_entry(entry))
    document["state"]["checkpoints"] = unpack(document["state"]["checkpoints"])[::-1]  # type: ignore[index]
    with wording.raises(StateCorrupt):
        decode_entry(json.dumps(document).encode())


def test_savepoints_stay_and_so_does_the_newest_checkpoint() -> None:
    """A savepoint is a copy of a checkpoint, which stays one: it takes its place among the newest.

    Case: DefaultCompletedCheckpointStoreTest.testAtLeastOneCheckpointRetained
    """
    state = with_savepoints(epochs(5).state, 3, 4, 5)
    assert remaining_ids(state, last=1) == [3, 4, 5]


def test_checkpoints_within_the_policy_are_not_dropped() -> None:
    """Exactly so many as the policy keeps: nothing is due, and asking for one is refused.

    Case: DefaultCompletedCheckpointStoreTest.testNotSubsumedIfNotNeeded
    """
    log = epochs(3)
    assert remaining_ids(log.state, last=3) == [1, 2, 3]
    assert_refused(log, ProtocolViolation, lambda: log.subsume(A, (1,), last=3))


def test_pinned_and_unconfirmed_checkpoints_are_retained_until_released() -> None:
    """I8: a reader's pin and an unconfirmed sink are roots; the latter includes what its table shows."""
    log = epochs(3)
    log.pin(B, 1, "reader")
    log.trigger(A)
    log.complete(A)
    log.epoch(A)
    assert remaining_ids(log.state, last=1) == [1, 3, 4, 5]
    assert len(live_pins(log.state, log.now_ms)) == 1
    log.unpin(B, "reader")
    assert remaining_ids(log.state, last=1) == [3, 4, 5]
    log.confirm(A, 4)
    assert remaining_ids(log.state, last=1) == [5]


def test_equal_checkpoints_have_equal_bytes() -> None:
    """One value has one encoding: comparing what two readers hold is comparing bytes.

    Case: CompletedCheckpointTest.testCompareCheckpointsWithSameOrder
    """
    one, other = epochs(2).state, epochs(2).state
    assert one.checkpoints == other.checkpoints
    assert encode(one) == encode(other)


def test_the_same_checkpoints_in_another_order_are_not_the_same() -> None:
    """Order is part of the value.

    Case: CompletedCheckpointTest.testCompareCheckpointsWithDifferentOrder
    """
    state = epochs(2).state
    reordered = replace(state, checkpoints=state.checkpoints[::-1])
    assert encode(reordered) != encode(state)


def test_another_checkpoint_of_the_same_job_is_another() -> None:
    """Equal in all but the id is not equal.

    Case: CompletedCheckpointTest.testCompareCheckpointsWithSameJobID
    """
    (checkpoint,) = epochs(1).state.checkpoints
    assert encode(replace(checkpoint, checkpoint_id=CheckpointId(2))) != encode(checkpoint)


def test_the_same_id_of_another_job_is_another() -> None:
    """An id means something only inside the manifest of its job.

    Case: CompletedCheckpointTest.testCompareCheckpointsWithSameCheckpointId
    """
    state = epochs(1).state
    assert encode(replace(state, job="other")) != encode(state)
    assert ids(replace(state, job="other").checkpoints) == ids(state.checkpoints)


def test_a_completed_checkpoint_is_read_back_as_it_was_written() -> None:
    """Stored as JSON, with every field.

    Case: CompletedCheckpointTest.testIsJavaSerializable
    """
    (checkpoint,) = epochs(1).state.checkpoints
    assert decode(CompletedCheckpoint, encode(checkpoint), "checkpoint") == checkpoint


# -- on a real store ------------------------------------------------------------------------------------------------


def job_with_epochs(folder: Path, count: int, last: int = 9) -> SparklessJob:
    job = SparklessJob.create(folder, {"retained: {last: 1}": f"retained: {{last: {last}}}"})
    for number in range(count):
        job.land(f"{number}.csv")
        job.epoch()
    return job


def next_epoch(job: SparklessJob) -> Session:
    """One more epoch, published; the session leads."""
    job.land(f"more-{job.context.head().version}.csv")
    session = Session.cli()
    completed = job.complete(session, job.trigger(session))
    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    return session


def test_a_completed_checkpoint_holds_the_runs_it_shares_from_its_commit_on(tmp_path: Path) -> None:
    """Reachability is the registry: no run that a new checkpoint refers to is ever listed with an older one.

    Case: CompletedCheckpointTest.testRegisterStatesAtRegistry
    Case: CompletedCheckpointTest.testCleanUpOnSubsume
    """
    job = job_with_epochs(tmp_path, 2, last=1)
    session = next_epoch(job)
    first, second, third = job.context.head().state.checkpoints
    shared = {run.key for run in job.context.metadata(first).sources["rows"].consumed}
    assert subsume_old(job.context, session.session_id, plan_subsumption(job.context, session.session_id)) == (1, 2)
    listed = listed_garbage(job.context.store, job.context.head().state).keys
    assert shared <= set(job.context.metadata(third).references())
    assert not any(run.startswith(prefix) for run in shared for prefix in listed)
    assert {first.metadata.key, second.metadata.key} <= set(listed)


def test_people_see_that_a_checkpoint_was_dropped(tmp_path: Path) -> None:
    """The statistics of a checkpoint follow its end: completed, then subsumed.

    Case: CompletedCheckpointTest.testCompletedCheckpointStatsCallbacks
    """
    job = job_with_epochs(tmp_path, 1, last=1)
    assert [item.status for item in job.master.reports.list_checkpoints()] == ["completed"]
    job.master.epochs.subsume(next_epoch(job))
    statuses = {item.checkpoint_id: item.status for item in job.master.reports.list_checkpoints()}
    assert statuses == {2: "completed", 1: "subsumed"}


def test_a_successful_commit_releases_the_old_checkpoints(tmp_path: Path) -> None:
    """Publish before delete: only once the new one is the head is the old one dropped.

    Case: DefaultCompletedCheckpointStoreTest.testAddCheckpointSuccessfullyShouldRemoveOldOnes
    """
    job = job_with_epochs(tmp_path, 1, last=1)
    session = next_epoch(job)
    assert ids(job.context.head().state.checkpoints) == [1, 2]
    assert job.master.epochs.subsume(session).subsumed == (1,)
    assert ids(job.context.head().state.checkpoints) == [2]


def test_a_failed_commit_retains_every_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transition that would add the new one did not land: head, retained checkpoints and files are as before.

    Case: DefaultCompletedCheckpointStoreTest.testAddCheckpointFailedShouldNotRemoveOldOnes
    """
    job = job_with_epochs(tmp_path, 1, last=1)
    (first,) = job.context.head().state.checkpoints
    job.land("more.csv")
    session = Session.cli()
    pending = job.trigger(session)
    with monkeypatch.context() as broken:
        refused_put = Fault(at("create", MANIFEST_PREFIX), Effect.UNAVAILABLE, times=99)
        break_store(broken, job.context.store_config.url, refused_put)
        with pytest.raises(CommitOutcomeUnknown):
            job.complete(session, pending)
        assert refused_put.reached.is_set()
    assert ids(job.context.head().state.checkpoints) == [1]
    assert job.context.metadata(first).checkpoint_id == 1
    assert job.master.reports.fsck().missing == ()


def test_a_corrupt_entry_fails_the_next_epoch_and_is_never_skipped(tmp_path: Path) -> None:
    """An older checkpoint would give other results, so there is no automatic fallback (exit 7).

    Case: DefaultCompletedCheckpointStoreTest.testCorruptDataInStateHandleStoreShouldNotBeSkipped
    """
    job = job_with_epochs(tmp_path, 2)
    newest = job.context.head().state.checkpoints[-1]
    job.context.store.put(newest.metadata.key, b"x" * newest.metadata.size)
    job.land("more.csv")
    version = job.context.head().version
    with pytest.raises(StateCorrupt):
        job.master.triggers.trigger(Session.cli())
    assert job.context.head().version == version, "nothing was triggered on an older one"


def test_a_torn_manifest_head_fails_without_falling_back_to_the_previous_version(tmp_path: Path) -> None:
    """I1: the head decides; one that cannot be read stops the job."""
    job = job_with_epochs(tmp_path, 1)
    newest = next(iter(job.context.store.list(MANIFEST_PREFIX, limit=1)))
    job.context.store.put(newest.key, job.context.store.get(newest.key)[:-20])
    with pytest.raises(StateCorrupt):
        job.context.head()


@pytest.mark.parametrize("end", ["finished", "canceled"])
def test_a_job_that_has_ended_takes_no_further_checkpoint(end: str) -> None:
    """I4: a trigger is refused, and so is the completion of a checkpoint that was never pending in it.

    Case: DefaultCompletedCheckpointStoreTest.testShutdownFailsAnyFutureCallsToAddCheckpoint
    """
    log = epochs(1)
    if end == "canceled":
        log.trigger(A)
        aborted = log.pending
        log.cancel(B, "not needed")
        assert_refused(log, Fenced, lambda: log.complete(A, aborted))
    else:
        log.finish(A)
    assert log.state.status is JobStatus(end)
    assert_refused(log, JobNotRunnable, lambda: log.trigger(B))
    assert ids(log.state.checkpoints) == [1]


def test_a_failed_or_canceled_job_retains_its_checkpoints(tmp_path: Path) -> None:
    """What ends here is a run of a job, not its history: every retained checkpoint can still be restored.

    Case: DefaultCompletedCheckpointStoreTest.testShutdownShouldNotDiscardStateHandleWhenJobIsNotGloballyTerminalState
    """
    job = job_with_epochs(tmp_path, 2)
    job.land("more.csv")
    session = Session.cli()
    job.master.epochs.abort(session, job.trigger(session).checkpoint_id, "SQL_ERROR", "broken")
    assert job.context.head().state.status is JobStatus.FAILED
    job.master.collect_garbage()
    assert ids(job.context.head().state.checkpoints) == [1, 2]
    report = job.master.reports.fsck()
    assert (report.missing, report.damaged) == ((), ())


def test_the_policy_never_needs_the_order_in_which_it_is_given_the_checkpoints() -> None:
    """A pure rule of a set."""
    checkpoints = epochs(4).state.checkpoints
    assert plan_retention(checkpoints[::-1], select_checkpoints(checkpoints, RetentionPolicy(2))) == (1, 2)


def test_only_the_session_that_leads_drops_checkpoints() -> None:
    """The policy is that of a spec, which an outdated session may have in an old version."""
    log = epochs(2)
    log.epoch(B)
    answer = log.subsume(A, (1, 2))
    assert isinstance(answer, AlreadyDone)
    assert answer.outcome is Outcome.NOT_LEADER
    leader = log.state.timeline().leader
    assert leader is not None
    assert leader.session_id == SessionId(B)
