"""Report the health of a job: its head, its input, its condition and the next step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from milepost.codec import OmitNone
from milepost.epoch import CheckpointMetadata, counted, iso_ms
from milepost.jobmaster.compatibility.edits import incomplete_statements
from milepost.jobmaster.compatibility.preflight import preflight
from milepost.jobmaster.compatibility.spec_check import mismatches
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.extend_record import extend_record
from milepost.jobmaster.job.session import is_provably_dead
from milepost.jobmaster.reports.cost.epoch_cost import MonthCost
from milepost.jobmaster.reports.health.conditions import Condition
from milepost.jobmaster.reports.health.past_epochs import PastEpochs, past_epochs
from milepost.jobmaster.reports.health.since import Since, condition_since, failing_since
from milepost.jobmaster.reports.health.sources import (
    Backlog,
    SourceHealth,
    backlog,
    failed_landing,
    missing_input,
    overdue_since,
    overdue_source,
    stale,
)
from milepost.jobmaster.reports.health.static_sources import StaticSourceHealth, static_sources
from milepost.jobmaster.reports.health.tables import TableHealth, tables_of
from milepost.jobmaster.reports.health.unfinished_backfills import UnfinishedBackfill, unfinished_backfills
from milepost.jobmaster.reports.health.verdict import (
    EpochCounts,
    Finding,
    Grade,
    JobVerdict,
    judge_completeness,
    judge_freshness,
    judge_rules,
)
from milepost.jobmaster.reports.job_report import JobReport, ResultReport, ended_step, report_job
from milepost.protocol.manifest.transaction import LeaseFacts, LeaseStatus, active_freeze, lease_status
from milepost.protocol.records import CheckpointFailureReason, CleanUp, Failures, JobStatus, ManifestState
from milepost.runbook import address
from milepost.storage.concurrency import prefetch
from milepost.storage.log import Head


@dataclass(frozen=True, slots=True)
class FreezeReport:
    """The session that blocks triggers on the live timeline, and until when."""

    session_id: str
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(JobReport):
    """Health of a job; of its input, see `Backlog`.

    Attributes:
        head, last_success: the newest checkpoint, and when it completed. pending: the running checkpoint.
        lease_over: why its lease has expired. spec_refused: why the next epoch would be refused.
        failed_in_a_row: counted failures since the last success or `resume`. triggered_checkpoints: on all timelines.
        unconfirmed: sinks for which completed checkpoints wait.
        month: cost per month, at the spec's prices.
        incomplete: SQL statements that do not equal their queries -> the checkpoint before which they do not. None: all
            do.
        tables: by sink.
        verdict: whether the tables are fresh, complete and right; None: the job has never run.
        condition: the most urgent one. runbook: address of its page.
        since: when the condition began; omitted if that is not known.
        exit_code: see DESIGN 8.2; healthy: whether it is 0.
    """

    head: int | None
    last_success: str | None
    pending: int | None
    lease_over: str | None
    unread_objects: int | None
    unread_bytes: int | None
    lag_ms: int | None
    source_changed: str | None
    bad_name: str | None
    sources: Mapping[str, SourceHealth] | None
    static_sources: Mapping[str, StaticSourceHealth]
    spec_refused: str | None
    in_flight_bytes: int
    last_failure: str | None
    last_failure_detail: str | None
    failed_in_a_row: int
    triggered_checkpoints: int
    unconfirmed: tuple[str, ...]
    frozen: FreezeReport | None
    unfinished_backfills: tuple[UnfinishedBackfill, ...]
    condition: Condition = Condition.HEALTHY
    runbook: str = ""
    exit_code: int = 0
    healthy: bool = True
    next_step: str = ""
    since: OmitNone[Since] = None
    month: OmitNone[MonthCost] = None
    incomplete: OmitNone[Mapping[str, int]] = None
    verdict: OmitNone[JobVerdict] = None
    tables: OmitNone[Mapping[str, TableHealth]] = None


def status_of(context: JobContext, head: Head | None, max_lag_ms: int | None) -> Status:
    """Return a job's health. Fields that follow from the plan are None if an object prevents planning.

    Args:
        head: of its manifest; None: it has never run.
        max_lag_ms: upper bound on the ages of unread objects, of the newest object and of the newest event time.
    """
    now_ms = context.store.clock_ms()
    state = head.state if head is not None else None
    base = context.base_metadata(state, state.timeline().head) if state is not None else None
    await_past = prefetch(
        context.store, lambda: PastEpochs() if state is None else past_epochs(context, state), "past-epochs"
    )
    unread = backlog(context, state, base, now_ms)
    nothing_lands = overdue_source(unread.sources or {})
    past = await_past()
    failing = failing_since(state, past.aborted, now_ms)
    verdict = None if state is None else _verdict(context, state, base, nothing_lands, past.completed, failing, now_ms)
    status = extend_record(
        Status,
        report_job(context.spec.name, state),
        **_checkpoint_fields(context, state, now_ms),
        **_input_fields(unread),
        **_failure_fields(state),
        static_sources=static_sources(context, base, now_ms),
        spec_refused=_spec_refused(context, base),
        in_flight_bytes=0 if base is None else base.in_flight_bytes,
        incomplete=incomplete_statements(context.job.spec, context.graph, base) or None,
        tables=tables_of(context, state, base, None if verdict is None else verdict.fresh),
        verdict=verdict,
    )
    condition, exit_code, step = _assess(status, nothing_lands, max_lag_ms)
    return replace(
        status,
        condition=condition,
        runbook=address(condition.value),
        exit_code=exit_code,
        healthy=exit_code == 0,
        next_step=step,
        since=_since(context, state, status, condition, failing, now_ms),
    )


def _checkpoint_fields(context: JobContext, state: ManifestState | None, now_ms: int) -> dict[str, Any]:
    """Return the fields of `Status` about checkpoints and timelines."""
    newest = None if state is None else state.head()
    return {
        "head": None if newest is None else newest.checkpoint_id,
        "last_success": None if newest is None else iso_ms(newest.completed_time_ms),
        "pending": _pending_id(state),
        "lease_over": _lease_over(context, state, now_ms),
        "triggered_checkpoints": 0 if state is None else int(state.next_checkpoint_id) - 1,
        "unconfirmed": ()
        if state is None
        else tuple(sorted({sink for item in state.unconfirmed() for sink in item.unconfirmed})),
        "frozen": _freeze_report(state, now_ms),
        "unfinished_backfills": () if state is None else unfinished_backfills(context, state),
    }


def _input_fields(unread: Backlog) -> dict[str, Any]:
    """Return the fields of `Status` about unread input."""
    return {
        "unread_objects": unread.unread_objects,
        "unread_bytes": unread.unread_bytes,
        "lag_ms": unread.lag_ms,
        "source_changed": unread.source_changed,
        "bad_name": unread.bad_name,
        "sources": unread.sources,
    }


def _failure_fields(state: ManifestState | None) -> dict[str, Any]:
    """Return the fields of `Status` about failed epochs."""
    failures = Failures() if state is None else state.failures
    return {
        "last_failure": failures.last_reason,
        "last_failure_detail": failures.last_detail,
        "failed_in_a_row": failures.consecutive,
    }


def _since(
    context: JobContext,
    state: ManifestState | None,
    status: Status,
    condition: Condition,
    failing: Since | None,
    now_ms: int,
) -> Since | None:
    """Return when the condition of a job began; None: unknown, or nothing is wrong or in progress."""
    if condition in (Condition.FAILED, Condition.EPOCH_FAILED):
        return failing
    if condition is Condition.OVERDUE:
        return overdue_since(status.sources or {})
    if status.verdict is not None and condition in _QUESTIONS:
        return _QUESTIONS[condition](status.verdict).since
    return condition_since(condition, context, state, now_ms)


_QUESTIONS: Mapping[Condition, Callable[[JobVerdict], Finding]] = {
    Condition.STALE: lambda verdict: verdict.fresh,
    Condition.ROWS_MISSING: lambda verdict: verdict.complete,
    Condition.RULES_UNMET: lambda verdict: verdict.right,
}
"""Condition of the tables -> the finding that it is made from."""


def _spec_refused(context: JobContext, base: CheckpointMetadata | None) -> str | None:
    """Format why the spec cannot continue the head; None if it can."""
    refused = mismatches(preflight(context, base, None))
    if base is None or not refused:
        return None
    return f"the spec does not fit checkpoint {base.checkpoint_id}: {'; '.join(refused)}"


def _verdict(
    context: JobContext,
    state: ManifestState,
    base: CheckpointMetadata | None,
    nothing_lands: str | None,
    epochs: Sequence[EpochCounts],
    failing: Since | None,
    now_ms: int,
) -> JobVerdict:
    return JobVerdict(
        judge_freshness(epochs, context.spec.health, now_ms, nothing_lands),
        judge_completeness(epochs, context.spec.health, now_ms),
        judge_rules(epochs, base, state.failures.last_reason, now_ms, failing),
    )


def _unusual(status: Status, verdict: JobVerdict) -> tuple[Condition, int, str] | None:
    """Return the condition of a job whose tables are not fresh, complete and right; None: they are."""
    look = f"milepost show {status.job} has the counts by operator, source and rule"
    if status.unread_objects:
        look = f"{counted(status.unread_objects, 'unread object')}: milepost run {status.job}"
    if verdict.fresh.grade > Grade.GOOD:
        step = look if status.unread_objects else "see what writes the sources"
        return Condition.STALE, 6, f"the tables are {verdict.fresh.text}; {step}"
    if verdict.complete.grade > Grade.GOOD:
        return Condition.ROWS_MISSING, 6, f"{verdict.complete.text}; {look}"
    if verdict.right.grade > Grade.GOOD:
        return Condition.RULES_UNMET, 6, f"{verdict.right.text}; {look}"
    return None


def _lease_over(context: JobContext, state: ManifestState | None, now_ms: int) -> str | None:
    """Return why the lease of the pending checkpoint is over; None if it is held, or nothing is pending."""
    timeline = state.timeline() if state is not None else None
    if timeline is None or timeline.pending is None or timeline.leader is None:
        return None
    facts = LeaseFacts(
        heartbeat_ms=context.heartbeat_ms(timeline.pending), holder_dead=is_provably_dead(timeline.leader.holder)
    )
    status = lease_status(timeline.pending, facts, now_ms)
    return None if status is LeaseStatus.HELD else status.value


def _assess(status: Status, nothing_lands: str | None, max_lag_ms: int | None) -> tuple[Condition, int, str]:
    job = status.job
    if status.job_status == JobStatus.FAILED.value:
        cause = str(status.last_failure)
        if cause == CheckpointFailureReason.STATE_CORRUPT.value:
            cause = f"{cause}: milepost verify {job} shows what is damaged, and the rollback command"
        return Condition.FAILED, 1, f"fix the cause ({cause}), then: milepost resume {job}"
    if status.result is not None:
        return _ended(status.result), 4, ended_step(job, status.result)
    if status.reconciling:
        waiting = ", ".join(status.reconciling)
        step = f"sinks {waiting} must still follow timeline {status.timeline}: milepost run {job} lets them"
        return Condition.RECONCILING, 1, step
    if (
        status.last_failure is not None and status.leader is not None
    ):  # without a leader the failure is of a former timeline
        failed = f"the last epoch failed ({status.last_failure})"
        if status.pending is not None and status.lease_over is None:
            step = f"checkpoint {status.pending} tries again: wait for it (milepost abort {job} gives it up)"
            return Condition.EPOCH_FAILED, 1, f"{failed}; {step}"
        return Condition.EPOCH_FAILED, 1, f"{failed}: milepost run {job}"
    if status.spec_refused is not None:
        return Condition.SPEC_REFUSED, 1, f"{status.spec_refused}: milepost lint {job} says the way out"
    refused = next((source.refused for source in status.static_sources.values() if source.refused is not None), None)
    stopped = status.source_changed or status.bad_name or refused
    if stopped is not None:
        return Condition.INPUT_REFUSED, 1, stopped
    if status.unconfirmed:
        waiting = ", ".join(status.unconfirmed)
        step = f"completed checkpoints are not yet published to sinks {waiting}: milepost run {job} publishes them"
        return Condition.UNPUBLISHED, 1, step
    if status.lease_over is not None:
        step = f"checkpoint {status.pending} is pending, its lease is over ({status.lease_over}): milepost run {job}"
        return Condition.LEASE_OVER, 1, step
    not_landed = failed_landing(job, status.sources or {})
    if not_landed is not None:
        return Condition.LANDING_FAILED, 1, not_landed
    if nothing_lands is not None:
        return Condition.OVERDUE, 6, nothing_lands
    too_old = stale(job, status.lag_ms, status.sources or {}, max_lag_ms) if max_lag_ms is not None else None
    if too_old is not None:
        return Condition.LATE, 6, too_old
    unusual = _unusual(status, status.verdict) if status.verdict is not None else None
    if unusual is not None:
        return unusual
    missing = missing_input(status.sources or {})
    if missing is not None and (status.head is not None or max_lag_ms is not None):
        return Condition.NO_INPUT, 0 if max_lag_ms is None else 6, missing
    # Before its first success it is unknown whether the job works, so its exit code is 1.
    return _condition_without_problem(status), 1 if status.head is None else 0, _next_step_without_problem(status)


def _ended(result: ResultReport) -> Condition:
    """Return the condition of an ended job. CANCELLING covers every end with unfinished clean-up."""
    if result.clean_up == CleanUp.DIRTY.value:
        return Condition.CANCELLING
    return Condition.FINISHED if result.status == JobStatus.FINISHED.value else Condition.CANCELED


def _condition_without_problem(status: Status) -> Condition:
    """Return the condition of a job without a problem."""
    if status.pending is not None:
        return Condition.RUNNING
    if status.frozen is not None:
        return Condition.FROZEN
    if status.unfinished_backfills:
        return Condition.BACKFILL_UNFINISHED
    return Condition.INITIALIZING if status.head is None else Condition.HEALTHY


def _next_step_without_problem(status: Status) -> str:
    """Format what a job without a problem waits for."""
    job = status.job
    if status.pending is not None:
        return f"checkpoint {status.pending} is running: wait for it (milepost abort {job} gives it up)"
    if status.unread_objects:
        return f"{counted(status.unread_objects, 'unread object')}: milepost run {job}"
    if status.in_flight_bytes:
        return f"{status.in_flight_bytes} bytes in flight: milepost run {job}"
    return missing_input(status.sources or {}) or "nothing to do"


def _freeze_report(state: ManifestState | None, now_ms: int) -> FreezeReport | None:
    """Return the active freeze of the live timeline; None: there is none."""
    frozen = active_freeze(state.timeline(), now_ms) if state is not None else None
    return None if frozen is None else FreezeReport(frozen.session_id, iso_ms(frozen.until_ms))


def _pending_id(state: ManifestState | None) -> int | None:
    pending = state.timeline().pending if state is not None else None
    return None if pending is None else int(pending.checkpoint_id)
