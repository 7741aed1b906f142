"""Which checkpoint request is served: one at a time, by time and by waiting sinks. There is no queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import Busy, JobNotRunnable
from milepost.jobmaster import Session, Triggered
from milepost.protocol.manifest.transaction.answers import Transition
from milepost.protocol.retention.retention import MAX_UNCONFIRMED
from milepost_testkit.jobs.job_log import AIR_1, AIR_2, MINUTE_MS, RUN_1, RUN_2, A, B, JobLog, assert_refused
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob


@pytest.mark.parametrize("ends", ["complete", "abort"])
def test_a_request_while_another_checkpoint_is_pending_waits_outside(ends: str) -> None:
    """It is refused, not forgotten: Airflow and the person ask again, and are served when the pending one has ended.

    No request is queued, so the first one beyond the pending checkpoint is refused as one too many.

    Case: CheckpointRequestDeciderTest.testEnqueueOnTooManyPending
    Case: CheckpointRequestDeciderTest.testNonForcedEnqueueOnTooManyPending
    Case: CheckpointRequestDeciderTest.testQueueSizeLimit
    """
    log = JobLog()
    log.trigger(AIR_1, RUN_1)
    for session, run in ((AIR_2, RUN_2), (A, None)):
        error = assert_refused(log, Busy, lambda s=session, r=run: log.trigger(s, r) if r else log.trigger(s))
        assert error.details["reason"] == "TOO_MANY_CHECKPOINT_REQUESTS"
    end = log.complete if ends == "complete" else log.abort
    assert isinstance(end(AIR_1), Transition)
    assert isinstance(log.trigger(AIR_2, RUN_2), Transition)
    assert log.pending.checkpoint_id == 2


def test_a_request_while_too_many_checkpoints_are_unfinished_behind_the_commit_point_waits() -> None:
    """Checkpoints to publish are checkpoints to clean up: the job must not run ever further ahead.

    Case: CheckpointRequestDeciderTest.testEnqueueOnTooManyCleaning
    """
    log = JobLog()
    for _ in range(MAX_UNCONFIRMED + 1):
        log.epoch(A, confirm=False)
    error = assert_refused(log, JobNotRunnable, lambda: log.trigger(B))
    assert error.details["reason"] == "TOO_MANY_CHECKPOINT_REQUESTS"
    log.confirm(B, 1)
    assert isinstance(log.trigger(B), Transition)


@pytest.mark.parametrize("since_ms", [0, 1, MINUTE_MS // 2, MINUTE_MS - 1])
def test_a_request_that_comes_too_early_says_how_long_to_wait(since_ms: int) -> None:
    """Case: CheckpointRequestDeciderTest.testCheckpointTiming"""
    log = JobLog()
    log.epoch(A)
    log.now_ms += since_ms
    error = assert_refused(log, Busy, lambda: log.trigger(B, min_pause_ms=MINUTE_MS))
    assert (error.details["reason"], error.details["wait_ms"]) == (
        "MINIMUM_TIME_BETWEEN_CHECKPOINTS",
        MINUTE_MS - since_ms,
    )
    log.now_ms += MINUTE_MS - since_ms
    assert isinstance(log.trigger(B, min_pause_ms=MINUTE_MS), Transition)


def test_a_forced_request_is_served_although_another_checkpoint_is_pending(tmp_path: Path) -> None:
    """A person requests --take-over: the pending checkpoint is aborted, uncounted, and the request served immediately.

    Case: CheckpointRequestDeciderTest.testForce
    """
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.trigger(Session.cli())
    with pytest.raises(Busy):
        job.master.triggers.trigger(Session.cli())
    forced = job.master.triggers.trigger(Session.cli(), take_over=True)
    assert isinstance(forced, Triggered) and forced.checkpoint_id == 2
    state = job.context.head().state
    assert (state.failures.last_reason, state.failures.consecutive) == ("LEADER_TAKEN_OVER", 0)
