"""Where a stored object stands once there are forks and rollbacks (I8)."""

from __future__ import annotations

from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.layout import token_prefix
from milepost.protocol.retention.reach import CheckpointOutcome, Listed, ObjectStatus, object_status, staged_status
from tests.harness.jobs.job_log import A, B, JobLog


def listed(log: JobLog) -> Listed:
    return Listed(frozenset(entry.prefix for entry in log.state.garbage))


def staged(log: JobLog, checkpoint: CompletedCheckpoint) -> ObjectStatus:
    outcome = CheckpointOutcome(9, checkpoint.token)
    return staged_status(
        log.state, "lake", checkpoint.checkpoint_id, FencingToken(checkpoint.token), outcome, listed(log)
    )


def test_what_a_fork_staged_waits_while_a_way_leads_to_it() -> None:
    log = JobLog()
    log.epoch(A)
    fork = log.fork(B, 1)
    log.epoch_on(B, fork)
    done = log.state.checkpoints[-1]
    assert staged(log, done) is ObjectStatus.IN_USE
    log.dispose_fork(B, fork)
    assert staged(log, done) is ObjectStatus.IN_USE, "until retention takes it, one may roll back to it"
    log.epoch(A)
    log.subsume(A, (1, 2))
    assert staged(log, done) is ObjectStatus.UNREACHABLE


def test_what_a_rollback_left_behind_before_it_was_published_waits_as_well() -> None:
    """A commit that was voided has no confirmation: its files are no more of use than its checkpoint."""
    log = JobLog()
    log.epoch(A)
    log.epoch(A, confirm=False)
    log.rollback(B, 1)
    done = log.state.checkpoints[-1]
    assert staged(log, done) is ObjectStatus.IN_USE
    log.reconcile(B)
    log.epoch(A)
    log.subsume(A, (1, 2))
    assert staged(log, done) is ObjectStatus.UNREACHABLE


def test_beside_a_pending_checkpoint_of_a_fork_everything_newer_is_in_use() -> None:
    """I8: also what the live timeline has completed and aborted meanwhile."""
    log = JobLog()
    log.epoch(A)
    fork = log.fork(B, 1)
    log.trigger(B, timeline=fork)
    log.trigger(A)
    lost = log.pending
    log.abort(A)
    key = token_prefix(lost.checkpoint_id, lost.token) + "late.parquet"
    assert object_status(log.state, key, (), listed(log)) is ObjectStatus.IN_USE
    log.dispose_fork(B, fork)
    assert object_status(log.state, key, (), listed(log)) is ObjectStatus.LISTED
    assert (
        object_status(log.state, token_prefix(CheckpointId(99), lost.token) + "x", (), listed(log))
        is ObjectStatus.FOREIGN
    )
