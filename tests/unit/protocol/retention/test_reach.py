"""Status of stored objects in jobs with forks and rollbacks (I8)."""

from __future__ import annotations

from dataclasses import replace

from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.layout import mark_key, registered_table_key, token_prefix
from milepost.protocol.retention.reach import CheckpointOutcome, GarbageKeys, ObjectStatus, object_status, staged_status
from milepost_testkit.jobs.job_log import A, B, JobLog


def listed(log: JobLog) -> GarbageKeys:
    return GarbageKeys(frozenset(entry.prefix for entry in log.state.garbage))


def staged(log: JobLog, checkpoint: CompletedCheckpoint, token: int) -> ObjectStatus:
    outcome = CheckpointOutcome(9, checkpoint.token)
    return staged_status(log.state, checkpoint.checkpoint_id, FencingToken(token), outcome, listed(log))


def test_files_staged_by_a_losing_try_are_deleted_with_its_prefix() -> None:
    """I3, I8: contents name only the winner's files; while the checkpoint is pending the winner is unknown."""
    log = JobLog()
    log.trigger(A)
    first = int(log.pending.token)
    log.rebind(A)
    pending = log.pending
    assert (
        staged_status(log.state, pending.checkpoint_id, FencingToken(first), None, listed(log)) is ObjectStatus.IN_USE
    )
    log.complete(A)
    (done,) = log.state.checkpoints
    assert staged(log, done, first) is ObjectStatus.LISTED
    log.state = replace(log.state, garbage=())
    assert staged(log, done, first) is ObjectStatus.UNREACHABLE


def test_files_staged_by_a_token_that_was_never_granted_are_foreign() -> None:
    log = JobLog()
    log.epoch(A)
    assert staged(log, log.state.checkpoints[0], 99) is ObjectStatus.FOREIGN


def test_marks_are_a_log_of_their_own() -> None:
    """I14: what a table carries is found by the number of a mark, so no walk calls one unreachable; a look alike is."""
    log = JobLog()
    log.epoch(A)
    assert mark_key("lake", 7) == "sinks/lake/marks/00000000000000000007.json"
    assert object_status(log.state, mark_key("lake", 7), (), listed(log)) is ObjectStatus.LOG
    for odd in ("sinks/lake/marks/7.json", "sinks/lake/00000000000000000007.json", mark_key("a/b", 7)):
        assert object_status(log.state, odd, (), listed(log)) is ObjectStatus.FOREIGN


def test_registered_tables_are_a_log_of_their_own() -> None:
    """I8: objects that only these name are collected with them; one with a similar name is foreign."""
    log = JobLog()
    log.epoch(A)
    key = registered_table_key("lake", "a" * 64)
    assert key == f"sinks/lake/tables/{'a' * 64}.json"
    assert object_status(log.state, key, (), listed(log)) is ObjectStatus.LOG
    for odd in ("sinks/lake/tables/a.json", f"sinks/lake/{'a' * 64}.json", registered_table_key("a/b", "a" * 64)):
        assert object_status(log.state, odd, (), listed(log)) is ObjectStatus.FOREIGN


def test_everything_newer_than_a_forks_pending_checkpoint_is_in_use() -> None:
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
