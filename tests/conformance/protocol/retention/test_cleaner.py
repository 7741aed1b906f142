"""A cleaner deletes only what is older than everything in use, and continues after a failure (I8)."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.jobmaster import Session
from milepost.jobmaster.retention.subsumption import MAX_FAILED_DROPS, delete_garbage
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.object_store import ObjectStore
from milepost.protocol.retention.retention import RetentionPolicy, collectable, deletable, minimum_grace_ms, subsumable
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import A, B, JobLog
from milepost_testkit.jobs.sparkless.sparkless_job import TIMEOUT_MS, SparklessJob
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore, at
from milepost_testkit.stores.job_stores import LaterStore

GRACE_MS = minimum_grace_ms(TIMEOUT_MS)


def test_a_checkpoint_in_use_is_not_cleaned_while_others_around_it_are() -> None:
    """In use: a reader pins it, or another timeline is based on it. The newer one next to it is deleted.

    Case: CheckpointsCleanerTest.testNotCleanCheckpointInUse
    """
    log = JobLog()
    for _ in range(3):
        log.epoch(A)
    assert subsumable(log.state, RetentionPolicy(1)) == (1, 2)
    log.pin(B, 1, "reader")
    assert subsumable(log.state, RetentionPolicy(1)) == (2,)
    log.unpin(B, "reader")
    log.fork(B, 1)
    assert subsumable(log.state, RetentionPolicy(1)) == (2,)


@pytest.mark.parametrize("lowest", [1, 2, 3])
def test_nothing_at_or_above_the_lowest_pending_checkpoint_is_cleaned(lowest: int) -> None:
    """Below it what is listed may go; the pending one, and whatever is newer, stays.

    Case: CheckpointsCleanerTest.testNotCleanHigherCheckpoint
    """
    log = JobLog()
    for _ in range(2):
        log.epoch(A)
        log.now_ms += 1
    log.trigger(B)
    log.now_ms += 2 * GRACE_MS
    pending = replace(log.pending, checkpoint_id=CheckpointId(lowest))
    state = replace(log.state, timelines=(replace(log.state.timeline(), pending=pending),))
    listed = {_checkpoint(entry.prefix) for entry in state.garbage}
    assert listed == {1, 2}
    expected = {checkpoint_id for checkpoint_id in listed if checkpoint_id < lowest}
    assert {_checkpoint(entry.prefix) for entry in collectable(state, log.now_ms, GRACE_MS)} == expected
    leaders = deletable(state, B, log.now_ms, GRACE_MS)  # type: ignore[arg-type]
    assert {_checkpoint(entry.prefix) for entry in leaders} == expected


def test_a_failed_deletion_is_logged_and_the_others_succeed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The epoch succeeds, the newest checkpoint is there, and what was left is deleted the next time.

    Case: StandaloneCompletedCheckpointStoreTest.testAddCheckpointWithFailedRemove
    """
    job, session, listed = _with_due_garbage(tmp_path)
    store = job.context.store
    (first, *others) = sorted(stat.key for prefix in listed for stat in store.list(prefix))
    fault = Fault(at("delete", first), Effect.UNAVAILABLE)
    _subsume(job, session, FaultyStore(store, [fault]), caplog)
    assert fault.reached.is_set()
    (said,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    wording.matches("gc", said)
    assert job.context.head().state.timeline().head == 3
    stored = {stat.key for stat in store.list("chk-")}
    assert first in stored
    gone = {key for key in others if not key.startswith(first.rpartition("/")[0])}
    assert gone
    assert not gone & stored
    _subsume(job, session, store, caplog)
    assert first not in {stat.key for stat in store.list("chk-")}


def test_an_unavailable_store_is_not_called_for_every_entry(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After a few failures the rest waits, still listed, for the next time."""
    job, session, listed = _with_due_garbage(tmp_path)
    assert len(listed) > MAX_FAILED_DROPS
    down = Fault(at("list", "chk-"), Effect.UNAVAILABLE, times=99)
    before = job.context.head().state.garbage
    _subsume(job, session, FaultyStore(job.context.store, [down]), caplog)
    assert 99 - down.times == MAX_FAILED_DROPS
    assert job.context.head().state.garbage == before


def _checkpoint(prefix: str) -> int:
    return int(prefix.split("/")[0].removeprefix("chk-"))


def _with_due_garbage(folder: Path) -> tuple[SparklessJob, Session, list[str]]:
    """Two tries of each of two epochs left directories that are listed; a third session leads."""
    job = SparklessJob.create(folder, {"retained: {last: 1}": "retained: {last: 9}"})
    for number in range(2):
        job.land(f"{number}.csv")
        session = Session.cli()
        loser = job.trigger(session)
        job.context.store.put(f"chk-{loser.checkpoint_id:020d}/t{loser.token:020d}/state/u/{number}.parquet", b"lost")
        completed = job.complete(session, job.rebind(session))
        job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    job.land("last.csv")
    session = Session.cli()
    completed = job.complete(session, job.trigger(session))
    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    leader = job.context.head().state.timeline().leader
    assert leader is not None
    due = [entry.prefix for entry in job.context.head().state.garbage if entry.since_version < leader.token]
    return job, session, due


def _subsume(job: SparklessJob, session: Session, store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    """What the leader does at the end of an epoch, through this store, a day later."""
    context = job.context
    context.__dict__["store"] = LaterStore(store, later_ms=24 * 3_600_000)
    with caplog.at_level(logging.WARNING):
        delete_garbage(context, session.session_id, TIMEOUT_MS)
