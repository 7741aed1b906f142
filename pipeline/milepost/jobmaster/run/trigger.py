"""The trigger claims the timeline for a session and opens its next epoch.

Three steps: first what others left behind is finished, or swept; then the epoch is planned on the head; then the claim
records it, if the head is still that one. What a lost race makes stale is planned anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from milepost.epoch.metadata import CheckpointMetadata
from milepost.epoch.plan import InputRecord
from milepost.epoch.timing.step_clock import PlanTimes, StepClock
from milepost.errors import CommitConflict, Fenced, InvalidRequest
from milepost.jobmaster.compatibility.new_tables import check_new_tables
from milepost.jobmaster.compatibility.preflight import Tell, check_compatible
from milepost.jobmaster.compatibility.rows_in_flight import check_continuable, is_drained
from milepost.jobmaster.job.broken_head import suggest_rollback
from milepost.jobmaster.job.checks.store_checks import head_within_deadline, require_stores
from milepost.jobmaster.job.code import JobCode, LoadedCode, read_code
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.next_dimensions import (
    dimension_inputs,
    plan_dimensions,
    settling_static_sources_message,
)
from milepost.jobmaster.job.input.next_input import (
    SourcePlans,
    no_input_message,
    plan_epoch,
    plan_sources,
    settles_in_ms,
    settling_message,
)
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.transactions import BegunTransaction
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.leadership.lifecycle import Lifecycle
from milepost.jobmaster.leadership.reconciliation import SinkReconciler
from milepost.jobmaster.run.opened_epoch import OpenedEpoch, granted
from milepost.jobmaster.run.triggered import NothingToDo, Triggered
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome
from milepost.protocol.manifest.transaction.preconditions import check_runnable, job_ended_error
from milepost.protocol.manifest.transaction.runs import find_coverage
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.ids import checkpoint_name
from milepost.protocol.records.manifest_state import ENDED_STATUSES, ManifestState
from milepost.quality.gate import resolve_suite
from milepost.storage.concurrency.background import prefetch

_PLAN_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class _Asked:
    """One call of `trigger`: whose it is, and its arguments."""

    session: Session
    allow_non_restored_state: bool
    drain: bool
    tell: Tell | None
    clock: StepClock


@dataclass(frozen=True, slots=True)
class _ListedAhead:
    """Plans of all sources, begun before the head was read: which head they continue, and what waits for them."""

    state: ManifestState
    plans: Callable[[], SourcePlans]


@dataclass(frozen=True, slots=True)
class _LeftBehind:
    """What others had left undone, and is done now: sinks that followed a switch, and what was published."""

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
        self, context: JobContext, leadership: Leadership, reconciler: SinkReconciler, lifecycle: Lifecycle
    ) -> None:
        self._context, self._leadership, self._reconciler = context, leadership, reconciler
        self._lifecycle = lifecycle

    @suggest_rollback
    def trigger(
        self,
        session: Session,
        *,
        take_over: bool = False,
        allow_non_restored_state: bool = False,
        drain: bool = False,
        tell: Tell | None = None,
    ) -> Triggered | NothingToDo:
        """Claim the timeline for the session and open its next epoch; first finish or sweep what others left.

        Args:
            take_over: abort another session's epoch although its lease is alive.
            allow_non_restored_state: leave state behind that nothing restores; such an epoch runs without input, too.
            tell: gets the pre-flight report of a spec or code that is not the head's.
            drain: when there is nothing to do any more, open the job's last epoch; after that, finish the job.
        Returns: the session's pending checkpoint (the same one when asked again), or why there is nothing to do.
        Raises:
            Busy: another session's lease is alive, or `min_pause` is not over.
            JobNotRunnable: FAILED, ended, or sinks lag too far behind.
            InvalidRequest: the spec, or a process function, does not fit itself or the state of the head.
        """
        asked = _Asked(session, allow_non_restored_state, drain, tell, StepClock())
        asked.clock("plan")
        ahead = self._listed_ahead()
        head = head_within_deadline(self._context)
        if head is None or _is_left_undone(head.state):
            require_stores(self._context)  # before anything is written; with nothing to do, nothing is
        state = self._leadership.head_or_create() if head is None else head.state
        done = find_coverage(state, session.session_id, session.run)
        if done is not None:
            return NothingToDo("covered", f"{done.message}{self._publish_what_waits(session, state)}")
        if (
            state.status in ENDED_STATUSES
        ):  # a grant asks for the job's result first: a finished incarnation never runs again
            raise job_ended_error(self._lifecycle.finish_clean_up(session))
        left = _LeftBehind()
        if _is_left_undone(state):
            left = self._finish_what_is_left(session, take_over=take_over)
            state = self._context.head().state
        for attempt in range(_PLAN_ATTEMPTS):
            state = self._context.head().state if attempt else state
            answer = self._open_next(asked, state, ahead if ahead is not None and ahead.state is state else None)
            if isinstance(answer, NothingToDo) and answer.status == "empty":
                return replace(answer, message=f"{answer.message}{left}")
            if answer is not None:
                return answer
        raise Fenced(
            f"job {self._context.spec.name}: the head moved during each of {_PLAN_ATTEMPTS} plans. Run it again."
        )

    def open_incarnation(self) -> str:
        """Return in words which incarnation is open, and what its first epoch continues.

        None goes on behind the last epoch of a drained job: then why, and what to do.
        """
        context = self._context
        state = context.head().state
        head = state.timeline().head
        said, base = f"incarnation {state.incarnation} is open", context.base_metadata(state, head)
        if base is not None and base.final:
            try:
                check_continuable(context, base, read_code(context).load(context))
            except InvalidRequest as error:
                return f"{said} at {checkpoint_name(head)}; no epoch goes on: {error.full_message()}"
        return f"{said}; its first epoch continues {checkpoint_name(head)}"

    def _finish_what_is_left(self, session: Session, *, take_over: bool) -> _LeftBehind:
        followed = self._reconciler.finish(session)
        self._leadership.sweep(session, take_over=take_over)
        return _LeftBehind(followed, tuple(self._leadership.commits.finish(session)))

    def _publish_what_waits(self, session: Session, state: ManifestState) -> _LeftBehind:
        """Publish what a run without a new epoch finds completed: it may be this very run, cleared before it published.

        A job that has ended, and a switch that sinks have yet to follow, are left to who ends those.
        """
        if state.reconciliation is not None or state.status in ENDED_STATUSES or not state.unconfirmed():
            return _LeftBehind()
        return _LeftBehind(published=tuple(self._leadership.commits.finish(session)))

    def _listed_ahead(self) -> _ListedAhead | None:
        """Begin to list the sources beside the look for the head, as what follows the last head that this process saw.

        Counts only where that is the head still: then it was the head when the listings began, and nobody has consumed
        an object between the two.
        """
        context = self._context
        known = context.log.last_seen
        base = None if known is None else context.cached_base(known.state, known.state.timeline().head)
        if known is None or base is None or _is_left_undone(known.state):
            return None
        return _ListedAhead(known.state, prefetch(context.store, partial(plan_sources, context, base), "sources"))

    def _open_next(
        self, asked: _Asked, state: ManifestState, ahead: _ListedAhead | None
    ) -> Triggered | NothingToDo | None:
        """Plan and claim the epoch that continues this head; None: the head has moved since.

        Args:
            ahead: the sources' plans, if they were begun for this very head.
        """
        context, session = self._context, asked.session
        own = self._leadership.own_pending(state, session)
        if own is not None:
            return self._triggered(asked, state, own, {}, None)
        check_runnable(state)  # before anything is planned: the cause of a FAILED job must not be hidden by another
        base = context.base_metadata(state, state.timeline().head)
        if is_drained(state, base):  # the last epoch is published, its session did not come to finish the job
            require_stores(context)
            finished = self._lifecycle.finish(session, state.timeline().head)
            return NothingToDo("drained", f"job {context.spec.name} is {finished.status}: it was drained")
        code, loaded, leaves_state = self._load(asked, base)
        self._reconciler.admit(session, state, base)
        plans = plan_sources(context, base) if ahead is None else ahead.plans()
        record = plan_epoch(context, base, loaded.graph, plans, drain=asked.drain, leaves_state=leaves_state)
        if record is None:
            words = settling_message(context, plans)
            return NothingToDo("empty", no_input_message(context, plans), settles_in_ms(plans), words)
        dimensions = plan_dimensions(context)
        if settling := settles_in_ms(dimensions):
            words = settling_message(context, dimensions)
            return NothingToDo("empty", settling_static_sources_message(context, dimensions), settling, words)
        record = replace(record, dimensions=dimension_inputs(dimensions))
        require_stores(context)
        check_new_tables(context, base)
        claim = self._claim(session, state, record, code.hash)
        if claim is None:
            return None
        if isinstance(claim.outcome, AlreadyDone) and claim.outcome.outcome is Outcome.COVERED:
            return NothingToDo("covered", claim.outcome.message)
        grant, opened = granted(self._leadership, claim, session), None
        if grant.leads is not None:
            opened = OpenedEpoch(claim.state, grant.pending, record, base, code, loaded, grant.leads)
        return self._triggered(asked, claim.state, grant.pending, record.summary, opened)

    def _load(self, asked: _Asked, base: CheckpointMetadata | None) -> tuple[JobCode, LoadedCode, bool]:
        """Return the job's code, loaded and fit for what the epoch continues, and whether that leaves state behind."""
        context = self._context
        context.job.spark_server()  # one whose Connection is of no use is refused before anything is planned
        code = read_code(context)
        if base is None or base.spec_hash != context.job.spec_hash:
            for suite in context.spec.quality:  # takes seconds; one that an epoch was judged by is known to be one
                resolve_suite(suite)
        loaded = code.load(context)
        allow, tell = asked.allow_non_restored_state, asked.tell
        leaves = check_compatible(context, base, code, loaded, allow_non_restored_state=allow, tell=tell)
        check_continuable(context, base, loaded)
        return code, loaded, leaves

    def _claim(
        self, session: Session, state: ManifestState, record: InputRecord, code_hash: str
    ) -> BegunTransaction | None:
        """Record the pending checkpoint; None when the head moved since `state` and the plan is stale."""
        try:
            return self._leadership.claim(session, state, record, code_hash)
        except CommitConflict:
            return None

    def _triggered(
        self,
        asked: _Asked,
        state: ManifestState,
        pending: PendingCheckpoint,
        summary: dict[str, Any],
        opened: OpenedEpoch | None,
    ) -> Triggered:
        sinks, clock = tuple(sorted(sink.name for sink in self._context.spec.sinks)), asked.clock
        clock.end()
        times = PlanTimes(clock.started_ms, clock.ms("plan"), clock.requests("plan"))
        token = pending.token
        return Triggered(pending.checkpoint_id, pending.epoch, state.live, token, sinks, summary, times, opened)


def _is_left_undone(state: ManifestState) -> bool:
    """Return whether a trigger has to write before it plans: the end of the job, a switch, a commit or an epoch."""
    begun = state.reconciliation is not None or state.timeline().pending is not None
    return begun or bool(state.unconfirmed()) or state.status in ENDED_STATUSES
