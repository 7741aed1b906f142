"""Claim the timeline for a session and open its next epoch.

The trigger has three steps. It finishes or sweeps the work that earlier sessions left incomplete. It plans the epoch on
the head. Then it claims the plan with a compare-and-set on that head. If the head has moved, it plans again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from milepost.epoch import CheckpointMetadata, InputRecord
from milepost.epoch.timing import PlanTimes, StepClock
from milepost.errors import CommitConflict, Fenced, InvalidRequest
from milepost.jobmaster.compatibility.rows_in_flight import check_continuable, is_drained
from milepost.jobmaster.compatibility.spec_check import OnReport, check_compatible
from milepost.jobmaster.compatibility.tables import check_new_tables
from milepost.jobmaster.job.broken_head import suggest_rollback
from milepost.jobmaster.job.checks.store_checks import head_within_deadline, require_stores
from milepost.jobmaster.job.code import JobCode, LoadedCode, read_code
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.input_notes import SourcePlans, no_input_message, settles_in_ms, settling_message
from milepost.jobmaster.job.input.next_dimensions import (
    dimension_inputs,
    plan_dimensions,
    settling_static_sources_message,
)
from milepost.jobmaster.job.input.next_input import LogBounds, plan_epoch, plan_sources
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.transactions import BegunTransaction
from milepost.jobmaster.job.use_case import use_case
from milepost.jobmaster.leadership.incarnations import Incarnations
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.leadership.lifecycle import Lifecycle
from milepost.jobmaster.leadership.reconciliation import SinkReconciler
from milepost.jobmaster.run.opened_epoch import OpenedEpoch, granted_checkpoint
from milepost.jobmaster.run.trigger_result import NothingToDo, Triggered
from milepost.protocol.manifest.transaction import AlreadyDone, Outcome, check_runnable, find_coverage, job_ended_error
from milepost.protocol.records import ENDED_STATUSES, ManifestState, PendingCheckpoint, checkpoint_name
from milepost.quality import resolve_suite
from milepost.storage.concurrency import prefetch

_PLAN_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class _TriggerCall:
    """One call of `trigger`: its session and arguments."""

    session: Session
    allow_non_restored_state: bool
    from_now_on: bool
    drain: bool
    up_to: LogBounds | None
    tell: OnReport | None
    clock: StepClock


@dataclass(frozen=True, slots=True)
class _PrefetchedPlans:
    """Source plans that were started before the head was read.

    Attributes:
        state: the head that they continue. plans: waits for them.
    """

    state: ManifestState
    plans: Callable[[], SourcePlans]


@dataclass(frozen=True, slots=True)
class _FinishedWork:
    """Work of earlier sessions that this call finished: sinks that followed a switch, and published checkpoints."""

    followed: tuple[str, ...] = ()
    published: tuple[str, ...] = ()

    def __str__(self) -> str:
        followed = (
            f"; sinks that had yet to follow the live timeline: {', '.join(self.followed)}" if self.followed else ""
        )
        return followed + (f"; published {', '.join(self.published)}, which had waited" if self.published else "")


class Trigger:
    """The use case `trigger` of one job."""

    def __init__(
        self,
        context: JobContext,
        leadership: Leadership,
        reconciler: SinkReconciler,
        incarnations: Incarnations,
        lifecycle: Lifecycle,
    ) -> None:
        self._context, self._leadership, self._reconciler = context, leadership, reconciler
        self._incarnations, self._lifecycle = incarnations, lifecycle

    @suggest_rollback
    @use_case
    def trigger(
        self,
        session: Session,
        *,
        take_over: bool = False,
        allow_non_restored_state: bool = False,
        from_now_on: bool = False,
        drain: bool = False,
        up_to: LogBounds | None = None,
        tell: OnReport | None = None,
    ) -> Triggered | NothingToDo:
        """Claim the timeline for the session and open its next epoch, after finishing the work of earlier sessions.

        Args:
            take_over: abort another session's epoch although its lease is alive.
            allow_non_restored_state: drop state that no operator restores. Such an epoch runs even without input.
            from_now_on: SQL statements may lack rows that were read before. The checkpoint records it.
            tell: receives the pre-flight report if the spec or the code differs from the head's.
            drain: if there is no more input, open the job's last epoch; after that epoch, finish the job.
            up_to: the records of landed sources that count as input. Later ones are left for other epochs. None: all.
        Returns: the session's pending checkpoint (the same one if called again), or why there is nothing to do.
        Raises:
            Busy: another session's lease is alive, or `min_pause` is not over.
            JobNotRunnable: the job is FAILED or has ended, or its sinks lag too far behind.
            InvalidRequest: the spec or a process function is inconsistent, or does not fit the state of the head.
        """
        call = _TriggerCall(session, allow_non_restored_state, from_now_on, drain, up_to, tell, StepClock())
        call.clock("plan")
        prefetched = self._prefetch_source_plans(up_to)
        head = head_within_deadline(self._context)
        if head is None or _has_unfinished_work(head.state):
            require_stores(self._context)  # before any write; a call that finds nothing to do writes nothing
        state = self._leadership.head_or_create() if head is None else head.state
        coverage = find_coverage(state, session.session_id, session.run)
        if coverage is not None:
            return NothingToDo("covered", f"{coverage.message}{self._publish_unconfirmed(session, state)}")
        if state.status in ENDED_STATUSES:  # a finished incarnation never runs again
            raise job_ended_error(self._incarnations.finish_clean_up(session))
        finished = _FinishedWork()
        if _has_unfinished_work(state):
            finished = self._finish_pending_work(session, take_over=take_over)
            state = self._context.head().state
        for attempt in range(_PLAN_ATTEMPTS):
            state = self._context.head().state if attempt else state
            plans = prefetched if prefetched is not None and prefetched.state is state else None
            result = self._open_next(call, state, plans)
            if isinstance(result, NothingToDo) and result.status == "empty":
                return replace(result, message=f"{result.message}{finished}")
            if result is not None:
                return result
        raise Fenced(
            f"job {self._context.spec.name}: the head moved during each of {_PLAN_ATTEMPTS} attempts to plan. Run it "
            "again."
        )

    @use_case
    def open_incarnation(self) -> str:
        """Return, as text, which incarnation is open and what its first epoch continues.

        If the head is the last epoch of a drained job, which cannot be continued, the text says why and what to do.
        """
        context = self._context
        state = context.head().state
        head = state.timeline().head
        text, base = "started", context.base_metadata(state, head)
        if base is not None and base.final:
            try:
                check_continuable(context, base, read_code(context).load(context))
            except InvalidRequest as error:
                return f"{text} at {checkpoint_name(head)}; no epoch can continue it: {error.full_message()}"
        return f"{text}; its first epoch continues {checkpoint_name(head)}"

    def _finish_pending_work(self, session: Session, *, take_over: bool) -> _FinishedWork:
        followed = self._reconciler.finish(session)
        self._leadership.sweep(session, take_over=take_over)
        return _FinishedWork(followed, tuple(self._leadership.commits.finish(session)))

    def _publish_unconfirmed(self, session: Session, state: ManifestState) -> _FinishedWork:
        """Publish completed checkpoints when the run has no new epoch.

        The unpublished checkpoint may be this run's own, if the Airflow task was cleared before it published. Clean-up
        of an ended job, and a switch that sinks have yet to follow, are left to the commands that started them.
        """
        if state.reconciliation is not None or state.status in ENDED_STATUSES or not state.unconfirmed():
            return _FinishedWork()
        return _FinishedWork(published=tuple(self._leadership.commits.finish(session)))

    def _prefetch_source_plans(self, up_to: LogBounds | None) -> _PrefetchedPlans | None:
        """Start listing the sources, while the head is read, from the last head that this process saw.

        The plans are valid only if that is still the head. Then it was the head when the listings began, and no object
        has been consumed in between.
        """
        context = self._context
        last_seen = context.log.last_seen
        base = None if last_seen is None else context.cached_base(last_seen.state, last_seen.state.timeline().head)
        if last_seen is None or base is None or _has_unfinished_work(last_seen.state):
            return None
        plans = prefetch(
            context.store, partial(plan_sources, context, base, last_seen.state.quarantined, up_to), "sources"
        )
        return _PrefetchedPlans(last_seen.state, plans)

    def _open_next(
        self, call: _TriggerCall, state: ManifestState, prefetched: _PrefetchedPlans | None
    ) -> Triggered | NothingToDo | None:
        """Plan and claim the epoch that continues this head. Returns None if the plan is stale.

        Args:
            prefetched: source plans that were started for this very head.
        """
        context, session = self._context, call.session
        own = self._leadership.own_pending(state, session)
        if own is not None:
            return self._triggered(call, state, own, {}, None)
        check_runnable(state)  # before planning, so that a planning error does not hide why the job is FAILED
        base = context.base_metadata(state, state.timeline().head)
        if is_drained(state, base):  # the last epoch was published, but its session stopped before finishing the job
            require_stores(context)
            finished = self._lifecycle.finish(session, state.timeline().head)
            return NothingToDo("drained", f"job {context.spec.name} is {finished.status}: it was drained")
        code, loaded, changes_state = self._load(call, base)
        self._reconciler.admit(session, state, base)
        plans = plan_sources(context, base, state.quarantined, call.up_to) if prefetched is None else prefetched.plans()
        record = plan_epoch(context, base, loaded.graph, plans, drain=call.drain, changes_state=changes_state)
        if record is None:
            settling = settling_message(context, plans)
            return NothingToDo("empty", no_input_message(context, plans), settles_in_ms(plans), settling)
        dimensions = plan_dimensions(context)
        if settle_ms := settles_in_ms(dimensions):
            settling = settling_message(context, dimensions)
            return NothingToDo("empty", settling_static_sources_message(context, dimensions), settle_ms, settling)
        record = replace(record, dimensions=dimension_inputs(dimensions))
        require_stores(context)
        check_new_tables(context, base)
        claim = self._claim(session, state, record, code.hash)
        if claim is None:
            return None
        if isinstance(claim.outcome, AlreadyDone) and claim.outcome.outcome is Outcome.COVERED:
            return NothingToDo("covered", claim.outcome.message)
        grant, opened = granted_checkpoint(self._leadership, claim, session), None
        if grant.assert_still_leader is not None:
            opened = OpenedEpoch(claim.state, grant.pending, record, base, code, loaded, grant.assert_still_leader)
        return self._triggered(call, claim.state, grant.pending, record.summary, opened)

    def _load(self, call: _TriggerCall, base: CheckpointMetadata | None) -> tuple[JobCode, LoadedCode, bool]:
        """Return the job's code, loaded and checked against the base, and whether the epoch needs no input."""
        context = self._context
        context.job.spark_server()  # an unusable Airflow Connection is refused before planning
        code = read_code(context)
        if base is None or base.spec_hash != context.job.spec_hash:
            for suite in context.spec.quality:  # takes seconds; suites of the base's spec were resolved before
                resolve_suite(suite)
        loaded = code.load(context)
        changes_state = check_compatible(
            context,
            base,
            code,
            loaded,
            allow_non_restored_state=call.allow_non_restored_state,
            from_now_on=call.from_now_on,
            on_report=call.tell,
        )
        check_continuable(context, base, loaded)
        return code, loaded, changes_state

    def _claim(
        self, session: Session, state: ManifestState, record: InputRecord, code_hash: str
    ) -> BegunTransaction | None:
        """Record the pending checkpoint. Returns None if the head or the quarantine has changed since the plan."""
        try:
            return self._leadership.claim(session, state, record, code_hash)
        except CommitConflict:
            return None

    def _triggered(
        self,
        call: _TriggerCall,
        state: ManifestState,
        pending: PendingCheckpoint,
        summary: dict[str, Any],
        opened: OpenedEpoch | None,
    ) -> Triggered:
        sinks, clock = tuple(sorted(sink.name for sink in self._context.spec.sinks)), call.clock
        clock.end()
        times = PlanTimes(clock.started_ms, clock.ms("plan"), clock.requests("plan"))
        token = pending.token
        return Triggered(pending.checkpoint_id, pending.epoch, state.live, token, sinks, summary, times, opened)


def _has_unfinished_work(state: ManifestState) -> bool:
    """Return whether a trigger has to write before it plans.

    That is after the end of the job, during a switch, with an unconfirmed commit, or with a pending epoch.
    """
    is_in_progress = state.reconciliation is not None or state.timeline().pending is not None
    return is_in_progress or bool(state.unconfirmed()) or state.status in ENDED_STATUSES
