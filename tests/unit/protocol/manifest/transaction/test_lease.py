"""When another session may take over a pending checkpoint (I10)."""

from __future__ import annotations

import pytest

from milepost.errors import Busy
from milepost.protocol.manifest.transaction.answers import Transition
from milepost.protocol.manifest.transaction.lease import (
    HEARTBEAT_INTERVAL_MS,
    HEARTBEAT_TIMEOUT_MS,
    Abandon,
    Adopt,
    LeaseFacts,
    LeaseStatus,
    NothingToSweep,
    lease_status,
    sweep_decision,
)
from milepost.protocol.records.ids import SessionId, TimelineId
from milepost.protocol.records.manifest_state import JobStatus
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import TIMEOUT_MS, A, B, JobLog

NEWCOMER = SessionId(B)


def pending_job() -> JobLog:
    log = JobLog()
    log.trigger(A)
    return log


@pytest.mark.parametrize(
    ("after_ms", "facts", "status"),
    [
        (0, LeaseFacts(), LeaseStatus.HELD),
        (TIMEOUT_MS - 1, LeaseFacts(), LeaseStatus.HELD),
        (TIMEOUT_MS, LeaseFacts(), LeaseStatus.NEVER_STARTED),
        (0, LeaseFacts(take_over=True), LeaseStatus.TAKEN_OVER),
        (0, LeaseFacts(holder_dead=True), LeaseStatus.HOLDER_DEAD),
        (0, LeaseFacts(holder_dead=True, take_over=True), LeaseStatus.HOLDER_DEAD),
        (-60 * TIMEOUT_MS, LeaseFacts(), LeaseStatus.HELD),
    ],
)
def test_a_lease_without_heartbeat_lives_until_its_deadline(
    after_ms: int, facts: LeaseFacts, status: LeaseStatus
) -> None:
    log = pending_job()
    assert lease_status(log.pending, facts, log.now_ms + after_ms) is status


@pytest.mark.parametrize(
    ("age_ms", "after_ms", "take_over", "status"),
    [
        (HEARTBEAT_TIMEOUT_MS - 1, 120_000, False, LeaseStatus.HELD),
        (HEARTBEAT_TIMEOUT_MS, 120_000, False, LeaseStatus.HEARTBEAT_LOST),
        (HEARTBEAT_TIMEOUT_MS, 120_000, True, LeaseStatus.HEARTBEAT_LOST),
        (HEARTBEAT_INTERVAL_MS, TIMEOUT_MS, False, LeaseStatus.EXPIRED),
        (HEARTBEAT_INTERVAL_MS, TIMEOUT_MS, True, LeaseStatus.EXPIRED),
        (HEARTBEAT_TIMEOUT_MS, TIMEOUT_MS, False, LeaseStatus.HEARTBEAT_LOST),
        (HEARTBEAT_INTERVAL_MS, 120_000, True, LeaseStatus.TAKEN_OVER),
        (-5_000, 120_000, False, LeaseStatus.HELD),
    ],
)
def test_a_heartbeat_that_has_begun_must_go_on(
    age_ms: int, after_ms: int, take_over: bool, status: LeaseStatus
) -> None:
    """A heartbeat that is 60 s old ends the lease; a fresh one at the deadline means too slow, not dead."""
    log = pending_job()
    now_ms = log.now_ms + after_ms
    assert lease_status(log.pending, LeaseFacts(take_over, now_ms - age_ms), now_ms) is status


def test_a_held_lease_is_busy_and_names_holder_and_remaining_time() -> None:
    log = pending_job()
    with wording.raises(Busy) as caught:
        sweep_decision(log.state, NEWCOMER, LeaseFacts(), log.now_ms)
    assert "--take-over" in caught.value.hint
    assert caught.value.details["deadline_ms"] == log.pending.deadline_ms


def test_there_is_nothing_to_sweep_without_a_pending_checkpoint_or_with_ones_own() -> None:
    log = JobLog()
    assert sweep_decision(log.state, NEWCOMER, LeaseFacts(), log.now_ms) == NothingToSweep()
    log.trigger(B)
    assert sweep_decision(log.state, NEWCOMER, LeaseFacts(), log.now_ms + 2 * TIMEOUT_MS) == NothingToSweep()


def test_a_finished_checkpoint_is_adopted() -> None:
    """I10: `_metadata` of the pending token exists with its verdict."""
    log = pending_job()
    decision = sweep_decision(log.state, NEWCOMER, LeaseFacts(holder_dead=True, gate_passed=True), log.now_ms)
    assert decision == Adopt(log.pending.checkpoint_id, log.pending.token)
    assert isinstance(log.complete(B, swept=True), Transition)


def test_a_checkpoint_whose_gate_had_failed_is_abandoned_for_that_reason() -> None:
    log = pending_job()
    decision = sweep_decision(log.state, NEWCOMER, LeaseFacts(holder_dead=True, gate_passed=False), log.now_ms)
    assert isinstance(decision, Abandon)
    assert decision.reason is CheckpointFailureReason.QUALITY_GATE_FAILED


@pytest.mark.parametrize(
    ("facts", "after_ms", "reason"),
    [
        (LeaseFacts(holder_dead=True), 0, CheckpointFailureReason.LEADER_LOST),
        (LeaseFacts(heartbeat_ms=0), 0, CheckpointFailureReason.LEADER_LOST),
        (LeaseFacts(), TIMEOUT_MS, CheckpointFailureReason.LEADER_LOST),
        (LeaseFacts(take_over=True), 0, CheckpointFailureReason.LEADER_TAKEN_OVER),
    ],
)
def test_a_dead_holder_does_not_fail_the_job(facts: LeaseFacts, after_ms: int, reason: CheckpointFailureReason) -> None:
    """After a crash: run again, same tables; no `resume`, though no failure is tolerated."""
    log = pending_job()
    log.now_ms += after_ms
    decision = sweep_decision(log.state, NEWCOMER, facts, log.now_ms)
    assert isinstance(decision, Abandon)
    assert decision.reason is reason
    log.abort(B, int(decision.checkpoint_id), decision.reason, token=int(decision.token), swept=True)
    assert log.state.status is JobStatus.RUNNING
    assert isinstance(log.submit(log.trigger_request(B)), Transition)


def test_a_holder_that_is_too_slow_has_failed() -> None:
    """Flink counts CHECKPOINT_EXPIRED."""
    log = pending_job()
    log.now_ms += TIMEOUT_MS
    decision = sweep_decision(log.state, NEWCOMER, LeaseFacts(heartbeat_ms=log.now_ms), log.now_ms)
    assert isinstance(decision, Abandon)
    assert decision.reason is CheckpointFailureReason.CHECKPOINT_EXPIRED
    assert decision.reason.counted


def test_a_new_session_on_a_fork_judges_its_pending_checkpoint() -> None:
    """Each timeline has its own lease: an epoch on one timeline does not block the other."""
    log = JobLog()
    log.epoch(A)
    fork = log.fork(A, 1)
    log.trigger(A, timeline=fork)
    now_ms = log.now_ms
    assert sweep_decision(log.state, NEWCOMER, LeaseFacts(), now_ms) == NothingToSweep()
    with wording.raises(Busy):
        sweep_decision(log.state, NEWCOMER, LeaseFacts(), now_ms, timeline=fork)
    dead = LeaseFacts(holder_dead=True)
    decision = sweep_decision(log.state, NEWCOMER, dead, now_ms, timeline=fork)
    assert isinstance(decision, Abandon) and decision.checkpoint_id == 2
    assert sweep_decision(log.state, NEWCOMER, dead, now_ms, timeline=TimelineId("t99")) == NothingToSweep()
    swept = log.abort(B, 2, decision.reason, token=int(decision.token), swept=True)
    assert isinstance(swept, Transition)
    assert log.state.timeline().leader is not None, "the schedule's leader leads on"
