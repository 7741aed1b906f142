"""The life of a job across incarnations: end, clean up, start again (I4; Flink's JobResultStore and job status).

An incarnation ends once: `cancel` or `finish` stores its result *dirty* in the transition that ends it. What is left to
do then (publish completed checkpoints, discard staged files) may be done by any later command, before anything else it
does; `clean` says that it is done. An incarnation with a result is never run again: `start` opens the next one, which
continues the head.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from milepost.protocol.failure.failures import printable_detail
from milepost.protocol.manifest.timelines.aborts import given_up
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer, Outcome, advance
from milepost.protocol.manifest.transaction.events import (
    CheckpointAborted,
    JobCanceled,
    JobCleaned,
    JobFinished,
    JobResumed,
    JobStarted,
)
from milepost.protocol.manifest.transaction.preconditions import check_reconciled, ended
from milepost.protocol.manifest.transaction.requests import (
    CancelRequest,
    CleanRequest,
    FinishRequest,
    ResumeRequest,
    StartRequest,
)
from milepost.protocol.records.errors import Busy, Fenced, JobNotRunnable, NotFound, ProtocolViolation
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
"""How many results the manifest keeps; that of an older incarnation is known to be clean."""


class JobPhase(Enum):
    """What people are told of a job: its status, and before, between and after."""

    INITIALIZING = "initializing"
    RUNNING = "running"
    FAILED = "failed"
    CANCELLING = "cancelling"
    CANCELED = "canceled"
    FINISHED = "finished"


def job_phase(state: ManifestState | None) -> JobPhase:
    """Return what a job is doing.

    INITIALIZING until a session of this incarnation has claimed the live timeline; a rollback or a fast-forward, which
    leaves it without a leader, takes nobody back there. CANCELLING while the clean-up of a canceled one is not over.
    """
    if state is None:
        return JobPhase.INITIALIZING
    if state.status is JobStatus.CANCELED and dirty_results(state.results):
        return JobPhase.CANCELLING
    if state.status is JobStatus.RUNNING and _is_untouched(state):
        return JobPhase.INITIALIZING
    return JobPhase(state.status.value)


def _is_untouched(state: ManifestState) -> bool:
    """Return whether nobody has led or switched the live timeline since the incarnation began."""
    live, before = state.timeline(), result_of(state.results, state.incarnation - 1)
    return live.leader is None and (live.parent is None if before is None else live.head == before.head)


def result_of(results: tuple[JobResult, ...], incarnation: int) -> JobResult | None:
    """Return the result of an incarnation, dirty or clean; None when it has none that is known."""
    return next((result for result in results if result.incarnation == incarnation), None)


def dirty_results(results: tuple[JobResult, ...]) -> tuple[JobResult, ...]:
    """Return the results whose clean-up is not over."""
    return tuple(result for result in results if result.clean_up is CleanUp.DIRTY)


def check_clean(state: ManifestState, what: str) -> None:
    """No clean-up of an incarnation waits. Raises JobNotRunnable."""
    if dirty_results(state.results):
        raise JobNotRunnable(
            f"job {state.job}: {what} refused: it is {state.status.name}, and the clean-up of incarnation"
            f" {state.incarnation} is not over. Nothing was written.",
            hint=f"milepost cancel {state.job} finishes it",
        )


def with_dirty(results: tuple[JobResult, ...], result: JobResult) -> tuple[JobResult, ...]:
    """Return the results with a new, dirty one.

    Raises:
        ProtocolViolation: the incarnation has a result already, dirty or clean, or the new one is not dirty.
    """
    known = result_of(results, result.incarnation)
    if known is not None or result.clean_up is not CleanUp.DIRTY:
        raise ProtocolViolation(
            f"incarnation {result.incarnation}: result {result.status.name} ({result.clean_up.value}) refused: expected"
            f" a dirty one of an incarnation without a result, which has"
            f" {'none' if known is None else f'{known.status.name} ({known.clean_up.value})'}. Nothing was written."
        )
    return (*results, result)[-MAX_RESULTS:]


def with_clean(results: tuple[JobResult, ...], incarnation: int) -> tuple[JobResult, ...]:
    """Return the results with one of them clean; unchanged when it was. Raises NotFound: there is no such result."""
    known = result_of(results, incarnation)
    if known is None:
        raise NotFound(
            f"incarnation {incarnation} has no result, expected one of"
            f" {[result.incarnation for result in results]}. Nothing was written.",
            incarnation=incarnation,
        )
    return tuple(replace(one, clean_up=CleanUp.CLEAN) if one is known else one for one in results)


def cancel(state: ManifestState, request: CancelRequest, now_ms: int) -> Answer:
    """End the incarnation as CANCELED: one transition aborts what is pending, fences its leader, stores a dirty result.

    Returns:
        A transition, or AlreadyDone ALREADY_ENDED, however it has ended.
    """
    if state.status in ENDED_STATUSES:
        return AlreadyDone(Outcome.ALREADY_ENDED, f"job {state.job} is {state.status.name}: there is nothing to cancel")
    left = state
    aborted: list[CheckpointAborted] = []
    for timeline in state.timelines:
        if timeline.pending is not None and timeline.leader is not None:
            event, left = given_up(
                left,
                (timeline, timeline.pending, timeline.leader),
                request.session_id,
                CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN,
                request.detail,
                0,
                now_ms,
            )
            aborted.append(event)
    result = _dirty(state, JobStatus.CANCELED, request.detail, now_ms)
    return advance(
        state,
        JobCanceled(now_ms, result, tuple(aborted), request.session_id),
        # An ended job has no leader: a session that led it may neither subsume nor delete any more.
        timelines=tuple(replace(timeline, leader=None) for timeline in left.timelines),
        failures=left.failures,
        garbage=left.garbage,
        aborted_sessions=left.aborted_sessions,
        results=with_dirty(state.results, result),
    )


def finish(state: ManifestState, request: FinishRequest, now_ms: int) -> Answer:
    """End the incarnation as FINISHED, after its final checkpoint is completed and published; the result is dirty.

    Returns:
        A transition, or AlreadyDone ALREADY_ENDED when it is FINISHED.
    Raises:
        JobNotRunnable: FAILED, canceled, or a sink has not confirmed, or has yet to follow a switch.
        Fenced: `final` is not the head: an outdated leader says so. Busy: an epoch is running after it.
    """
    if state.status is JobStatus.FINISHED:
        return AlreadyDone(Outcome.ALREADY_ENDED, f"job {state.job} is FINISHED already")
    if state.status is not JobStatus.RUNNING:
        raise ended(state) if state.status in ENDED_STATUSES else _failed(state, "finish")
    head = state.timeline().head
    if request.final != head or head == 0:
        raise Fenced(
            f"job {state.job}: finish by session {request.session_id} refused: checkpoint {request.final} was its last,"
            f" the head is {head}. Nothing was written.",
            checkpoint_id=request.final,
        )
    running = [one.pending.checkpoint_id for one in state.timelines if one.pending is not None]
    if running:
        raise Busy(
            f"job {state.job}: finish refused: checkpoint {running[0]} is pending. Nothing was written.",
            hint="Wait for it, or give it up, and finish then.",
            checkpoint_id=running[0],
        )
    waiting = [int(checkpoint.checkpoint_id) for checkpoint in state.unconfirmed()]
    if waiting:
        raise JobNotRunnable(
            f"job {state.job}: finish refused: checkpoints {waiting} wait for a sink. Nothing was written.",
            hint="Bring the sinks back; the next run publishes them.",
            unconfirmed=waiting,
        )
    check_reconciled(state, "finish")
    result = _dirty(state, JobStatus.FINISHED, request.detail, now_ms)
    return advance(
        state,
        JobFinished(now_ms, result, request.session_id),
        timelines=tuple(replace(timeline, leader=None) for timeline in state.timelines),
        results=with_dirty(state.results, result),
    )


def clean(state: ManifestState, request: CleanRequest, now_ms: int) -> Answer:
    """Say that what the end of an incarnation left to do is done.

    Returns:
        A transition, or AlreadyDone ALREADY_CLEAN.
    Raises:
        NotFound: the incarnation has no result. JobNotRunnable: a completed checkpoint still waits for a sink, or a
            sink has yet to follow a switch.
    """
    results = with_clean(state.results, request.incarnation)
    if results == state.results:
        return AlreadyDone(Outcome.ALREADY_CLEAN, f"the result of incarnation {request.incarnation} is clean already")
    waiting = state.unconfirmed()
    if waiting:
        sinks = sorted({sink for checkpoint in waiting for sink in checkpoint.unconfirmed})
        raise JobNotRunnable(
            f"job {state.job}: its result stays dirty: checkpoints {[int(one.checkpoint_id) for one in waiting]} wait"
            f" for sinks {sinks}. Nothing was written.",
            hint="Bring the sinks back: what is completed is published before anything else.",
            sinks=sinks,
        )
    check_reconciled(state, "clean")
    return advance(state, JobCleaned(now_ms, request.incarnation, request.session_id), results=results)


def start(state: ManifestState, request: StartRequest, now_ms: int) -> Answer:
    """Open the next incarnation of a job that has ended: the head is continued, failures are forgotten.

    Returns:
        A transition, or AlreadyDone ALREADY_RUNNING.
    Raises:
        JobNotRunnable: FAILED (that is `resume`'s), or the clean-up of the last incarnation is not over.
    """
    if state.status is JobStatus.RUNNING:
        return AlreadyDone(Outcome.ALREADY_RUNNING, f"job {state.job} is running: there is nothing to start")
    if state.status is JobStatus.FAILED:
        raise _failed(state, "start")
    check_clean(state, "start")
    incarnation = state.incarnation + 1
    return advance(
        state,
        JobStarted(now_ms, incarnation, state.timeline().head, request.session_id),
        incarnation=incarnation,
        failures=Failures(last_success=state.failures.last_success),
    )


def resume(state: ManifestState, request: ResumeRequest, now_ms: int) -> Answer:
    """Clear FAILED after a person has fixed its cause.

    Raises:
        JobNotRunnable: the job has ended; only `start` opens another incarnation.
    """
    if state.status is JobStatus.RUNNING:
        return AlreadyDone(Outcome.ALREADY_RUNNING, f"job {state.job} is running: there is nothing to resume")
    if state.status is not JobStatus.FAILED:
        raise ended(state)
    return advance(
        state,
        JobResumed(now_ms, state.failures.last_reason, state.failures.last_detail, request.session_id),
        failures=Failures(last_success=state.failures.last_success),
    )


def _dirty(state: ManifestState, status: JobStatus, detail: str, now_ms: int) -> JobResult:
    head: CheckpointId = state.timeline().head
    return JobResult(state.incarnation, status, CleanUp.DIRTY, now_ms, head, printable_detail(detail))


def _failed(state: ManifestState, what: str) -> JobNotRunnable:
    return JobNotRunnable(
        f"job {state.job}: {what} refused: it is FAILED ({state.failures.last_reason}). Nothing was written.",
        hint=f"Fix the cause, then: milepost resume {state.job}",
    )
