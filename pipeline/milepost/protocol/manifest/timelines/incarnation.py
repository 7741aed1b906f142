"""Incarnations of a job: end, clean up and start again (I4; Flink's JobResultStore and job status).

An incarnation ends once. `cancel` or `finish` stores its result as *dirty* in the transition that ends it. The
remaining clean-up (publish completed checkpoints, discard staged files) may be done by any later command, before its
own work, and `clean` records that it is done. An incarnation with a result never runs again: `start` opens the next
one, which continues from the head.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from milepost.errors import Busy, Fenced, JobNotRunnable, NotFound, ProtocolViolation
from milepost.protocol.failure.failures import printable_decision, printable_detail
from milepost.protocol.manifest.timelines.aborts import abort_pending
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer, Outcome, advance
from milepost.protocol.manifest.transaction.events import (
    CheckpointAborted,
    JobCanceled,
    JobCleaned,
    JobFinished,
    JobResumed,
    JobStarted,
)
from milepost.protocol.manifest.transaction.preconditions import check_reconciled, job_ended_error
from milepost.protocol.manifest.transaction.requests import (
    CancelRequest,
    CleanRequest,
    FinishRequest,
    ResumeRequest,
    StartRequest,
)
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.manifest_state import (
    ENDED_STATUSES,
    CleanUp,
    Failures,
    JobResult,
    JobStatus,
    ManifestState,
)
from milepost.protocol.records.reasons import CheckpointFailureReason

MAX_RESULTS = 64
"""Number of results that the manifest retains. The results of older incarnations are always clean."""


class JobPhase(Enum):
    """The job's status as shown to people, including the phases before the first run and during clean-up."""

    INITIALIZING = "initializing"
    RUNNING = "running"
    FAILED = "failed"
    CANCELLING = "cancelling"
    CANCELED = "canceled"
    FINISHED = "finished"


def job_phase(state: ManifestState | None) -> JobPhase:
    """Return the current phase of a job.

    INITIALIZING lasts until a session of this incarnation claims the live timeline. A rollback or a fast-forward leaves
    the timeline without a leader, but does not return to INITIALIZING. CANCELLING lasts until the clean-up is done.
    """
    if state is None:
        return JobPhase.INITIALIZING
    if state.status is JobStatus.CANCELED and dirty_results(state.results):
        return JobPhase.CANCELLING
    if state.status is JobStatus.RUNNING and _is_untouched(state):
        return JobPhase.INITIALIZING
    return JobPhase(state.status.value)


def _is_untouched(state: ManifestState) -> bool:
    """Return whether no session has led or switched the live timeline in this incarnation."""
    live, previous_result = state.timeline(), result_of(state.results, state.incarnation - 1)
    if live.leader is not None:
        return False
    return live.parent is None if previous_result is None else live.head == previous_result.head


def result_of(results: tuple[JobResult, ...], incarnation: int) -> JobResult | None:
    """Return the result of an incarnation, dirty or clean; None if it has none, or it is too old."""
    return next((result for result in results if result.incarnation == incarnation), None)


def dirty_results(results: tuple[JobResult, ...]) -> tuple[JobResult, ...]:
    """Return the results with outstanding clean-up."""
    return tuple(result for result in results if result.clean_up is CleanUp.DIRTY)


def check_clean(state: ManifestState, operation: str) -> None:
    """Check that no clean-up of an incarnation is outstanding. Raises JobNotRunnable."""
    if dirty_results(state.results):
        raise JobNotRunnable(
            f"job {state.job}: {operation} refused: it is {state.status.name}, and the clean-up of incarnation"
            f" {state.incarnation} is not over. Nothing was written.",
            hint=f"milepost cancel {state.job} finishes it",
        )


def add_dirty_result(results: tuple[JobResult, ...], result: JobResult) -> tuple[JobResult, ...]:
    """Return the results with a new, dirty one appended.

    Raises:
        ProtocolViolation: the incarnation has a result already, or the new one is not dirty.
    """
    existing = result_of(results, result.incarnation)
    if existing is not None or result.clean_up is not CleanUp.DIRTY:
        raise ProtocolViolation(
            f"incarnation {result.incarnation}: result {result.status.name} ({result.clean_up.value}) refused: expected"
            f" a dirty result of an incarnation that has none, but it has"
            f" {'none' if existing is None else f'{existing.status.name} ({existing.clean_up.value})'}. Nothing was"
            " written."
        )
    return (*results, result)[-MAX_RESULTS:]


def mark_result_clean(results: tuple[JobResult, ...], incarnation: int) -> tuple[JobResult, ...]:
    """Return the results with one marked clean; unchanged if it already is. Raises NotFound: there is no result."""
    existing = result_of(results, incarnation)
    if existing is None:
        raise NotFound(
            f"incarnation {incarnation} has no result, expected one of"
            f" {[result.incarnation for result in results]}. Nothing was written.",
            incarnation=incarnation,
        )
    return tuple(replace(result, clean_up=CleanUp.CLEAN) if result is existing else result for result in results)


def cancel(state: ManifestState, request: CancelRequest, now_ms: int) -> Answer:
    """End the incarnation as CANCELED: abort pending checkpoints, fence their leaders and store a dirty result.

    Returns:
        A transition, or AlreadyDone ALREADY_ENDED if it has ended, no matter how.
    """
    if state.status in ENDED_STATUSES:
        return AlreadyDone(Outcome.ALREADY_ENDED, f"job {state.job} is {state.status.name}: there is nothing to cancel")
    after_aborts = state
    aborted: list[CheckpointAborted] = []
    for timeline in state.timelines:
        if timeline.pending is not None and timeline.leader is not None:
            event, after_aborts = abort_pending(
                after_aborts,
                (timeline, timeline.pending, timeline.leader),
                request.session_id,
                CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN,
                request.decided_by.text,
                0,
                now_ms,
            )
            aborted.append(event)
    result = _dirty_result(state, JobStatus.CANCELED, request.decided_by.text, now_ms)
    return advance(
        state,
        JobCanceled(now_ms, result, tuple(aborted), request.session_id, printable_decision(request.decided_by)),
        # An ended job has no leader, so the session that led it may no longer subsume or delete.
        timelines=tuple(replace(timeline, leader=None) for timeline in after_aborts.timelines),
        failures=after_aborts.failures,
        garbage=after_aborts.garbage,
        aborted_sessions=after_aborts.aborted_sessions,
        results=add_dirty_result(state.results, result),
    )


def finish(state: ManifestState, request: FinishRequest, now_ms: int) -> Answer:
    """End the incarnation as FINISHED, after its final checkpoint is completed and published. The result is dirty.

    Returns:
        A transition, or AlreadyDone ALREADY_ENDED if it is FINISHED.
    Raises:
        JobNotRunnable: FAILED or canceled, or a sink has not confirmed a checkpoint or has not followed a switch.
        Fenced: `final` is not the head, so the request comes from an outdated leader. Busy: an epoch is running.
    """
    if state.status is JobStatus.FINISHED:
        return AlreadyDone(Outcome.ALREADY_ENDED, f"job {state.job} is FINISHED already")
    if state.status is not JobStatus.RUNNING:
        raise job_ended_error(state) if state.status in ENDED_STATUSES else _failed(state, "finish")
    head = state.timeline().head
    if request.final != head or head == 0:
        raise Fenced(
            f"job {state.job}: finish by session {request.session_id} refused: checkpoint {request.final} was its last,"
            f" the head is {head}. Nothing was written.",
            checkpoint_id=request.final,
        )
    running = [timeline.pending.checkpoint_id for timeline in state.timelines if timeline.pending is not None]
    if running:
        raise Busy(
            f"job {state.job}: finish refused: checkpoint {running[0]} is pending. Nothing was written.",
            hint="Wait for it or abort it, then finish.",
            checkpoint_id=running[0],
        )
    waiting = [int(checkpoint.checkpoint_id) for checkpoint in state.unconfirmed()]
    if waiting:
        raise JobNotRunnable(
            f"job {state.job}: finish refused: checkpoints {waiting} wait for a sink. Nothing was written.",
            hint="Make the sinks available; the next run publishes the checkpoints.",
            unconfirmed=waiting,
        )
    check_reconciled(state, "finish")
    result = _dirty_result(state, JobStatus.FINISHED, request.detail, now_ms)
    return advance(
        state,
        JobFinished(now_ms, result, request.session_id),
        timelines=tuple(replace(timeline, leader=None) for timeline in state.timelines),
        results=add_dirty_result(state.results, result),
    )


def clean(state: ManifestState, request: CleanRequest, now_ms: int) -> Answer:
    """Record that the clean-up after an incarnation's end is done.

    Returns:
        A transition, or AlreadyDone ALREADY_CLEAN.
    Raises:
        NotFound: the incarnation has no result. JobNotRunnable: a completed checkpoint still waits for a sink, or a
            sink has not followed a switch.
    """
    results = mark_result_clean(state.results, request.incarnation)
    if results == state.results:
        return AlreadyDone(Outcome.ALREADY_CLEAN, f"the result of incarnation {request.incarnation} is clean already")
    waiting = state.unconfirmed()
    if waiting:
        sinks = sorted({sink for checkpoint in waiting for sink in checkpoint.unconfirmed})
        raise JobNotRunnable(
            f"job {state.job}: its result stays dirty: checkpoints {[int(late.checkpoint_id) for late in waiting]} wait"
            f" for sinks {sinks}. Nothing was written.",
            hint="Make the sinks available: completed checkpoints are published before anything else.",
            sinks=sinks,
        )
    check_reconciled(state, "clean")
    return advance(state, JobCleaned(now_ms, request.incarnation, request.session_id), results=results)


def start(state: ManifestState, request: StartRequest, now_ms: int) -> Answer:
    """Open the next incarnation of a job that has ended. It continues from the head, and failures are reset.

    Returns:
        A transition, or AlreadyDone ALREADY_RUNNING.
    Raises:
        JobNotRunnable: FAILED, which needs `resume`; or the last incarnation's clean-up is not done.
    """
    if state.status is JobStatus.RUNNING:
        return AlreadyDone(Outcome.ALREADY_RUNNING, f"job {state.job} is running: there is nothing to start")
    if state.status is JobStatus.FAILED:
        raise _failed(state, "start")
    check_clean(state, "start")
    incarnation = state.incarnation + 1
    return advance(
        state,
        JobStarted(
            now_ms,
            incarnation,
            state.timeline().head,
            request.session_id,
            printable_detail(request.decided_by.text),
            printable_decision(request.decided_by),
        ),
        incarnation=incarnation,
        failures=Failures(last_success=state.failures.last_success),
    )


def resume(state: ManifestState, request: ResumeRequest, now_ms: int) -> Answer:
    """Clear FAILED after a person has fixed the cause.

    Raises:
        JobNotRunnable: the job has ended; only `start` opens another incarnation.
    """
    if state.status is JobStatus.RUNNING:
        return AlreadyDone(Outcome.ALREADY_RUNNING, f"job {state.job} is running: there is nothing to resume")
    if state.status is not JobStatus.FAILED:
        raise job_ended_error(state)
    return advance(
        state,
        JobResumed(
            now_ms,
            state.failures.last_reason,
            state.failures.last_detail,
            request.session_id,
            printable_detail(request.decided_by.text),
            printable_decision(request.decided_by),
        ),
        failures=Failures(last_success=state.failures.last_success),
    )


def _dirty_result(state: ManifestState, status: JobStatus, detail: str, now_ms: int) -> JobResult:
    head: CheckpointId = state.timeline().head
    return JobResult(state.incarnation, status, CleanUp.DIRTY, now_ms, head, printable_detail(detail))


def _failed(state: ManifestState, operation: str) -> JobNotRunnable:
    return JobNotRunnable(
        f"job {state.job}: {operation} refused: it is FAILED ({state.failures.last_reason}). Nothing was written.",
        hint=f"Fix the cause, then: milepost resume {state.job}",
    )
