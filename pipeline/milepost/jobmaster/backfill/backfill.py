"""The use cases of a backfill: plan it, run or continue it, dispose of its forks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from milepost.epoch import EpochRunner
from milepost.jobmaster.backfill.backfill_run import Backfill, Progress
from milepost.jobmaster.backfill.consumed_input import consumed_by
from milepost.jobmaster.backfill.forks import backfill_fingerprint, dispose_all, fork_to_continue, left_behind
from milepost.jobmaster.backfill.plan import (
    ApprovedBackfill,
    BackfillPlan,
    assumptions,
    fork_point,
    prepare,
    request_of,
)
from milepost.jobmaster.backfill.plan_document import BackfillDocument, document_of
from milepost.jobmaster.backfill.replay import left_to_replay
from milepost.jobmaster.job.checks.store_checks import require_stores
from milepost.jobmaster.job.code import read_code
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.use_case import use_case
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.leadership.reconciliation import SinkReconciler
from milepost.jobmaster.run.epochs import Epochs
from milepost.protocol.manifest import decide
from milepost.protocol.manifest.transaction import ForkRequest
from milepost.protocol.records import CheckpointId, Decision, TimelineId


@dataclass(frozen=True, slots=True)
class ReplayedEpoch:
    """An epoch of the fork. Figures that were not recorded are None."""

    checkpoint_id: int
    epoch: int
    rows_in: object
    rows_out: object
    late_rows: object
    dropped_rows: object
    quality: object


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """What a backfill did.

    Attributes:
        from_timeline: the replaced timeline. previous_head: its head, 0 for none.
        timeline: the live timeline after it. checkpoint_id: its head.
    """

    outcome: str
    job: str
    fork_point: int
    from_timeline: str
    previous_head: int
    timeline: str
    checkpoint_id: int
    epochs: tuple[ReplayedEpoch, ...]
    sinks: tuple[str, ...]
    next_step: str


@dataclass(frozen=True, slots=True)
class DisposedBackfills:
    """The disposed forks of backfills."""

    job: str
    disposed: tuple[str, ...]


class Backfills:
    """The use cases of one job's backfills."""

    def __init__(self, context: JobContext, epochs: Epochs, leadership: Leadership, reconciler: SinkReconciler) -> None:
        self._context, self._epochs = context, epochs
        self._leadership, self._reconciler = leadership, reconciler

    def plan(
        self,
        from_: str | None = None,
        to: str | None = None,
        from_checkpoint: int | None = None,
        *,
        ranges_per_epoch: int = 1,
        allow_non_restored_state: bool = False,
    ) -> BackfillDocument:
        """Return what a backfill would do, after all checks that are possible in advance. Changes nothing.

        Args:
            from_, to: event times, ISO 8601. from_checkpoint: the fork point, instead of `from_`.
            ranges_per_epoch, allow_non_restored_state: as in `BackfillRequest`.
        Raises: as `plan.prepare`.
        """
        request = request_of(from_, to, from_checkpoint, ranges_per_epoch, allow_non_restored_state)
        return _document(self._context, prepare(self._context, request))

    def target(
        self,
        from_: str | None,
        to: str | None,
        from_checkpoint: int | None,
        *,
        ranges_per_epoch: int = 1,
        allow_non_restored_state: bool = False,
    ) -> ApprovedBackfill:
        """Return the span that these arguments mean now, as for `plan`, without its other checks.

        Raises: NotFound, InvalidRequest.
        """
        request = request_of(from_, to, from_checkpoint, ranges_per_epoch, allow_non_restored_state)
        context, state = self._context, self._context.head().state
        return assumptions(context, state, fork_point(context, state, request), request, read_code(context))

    @use_case
    def run(
        self,
        session: Session,
        runner: EpochRunner,
        approved: ApprovedBackfill,
        *,
        progress: Progress | None = None,
        decision: Decision | None = None,
    ) -> BackfillResult:
        """Replay recorded input with the current code, and replace the live timeline by the result.

        Args:
            approved: of the plan: `backfills.plan(from_).approved`. decision: who decided and why, for the history.
        Raises: as `Backfill.replay`; before it starts, as `plan`. PlanOutdated: what the plan assumes has changed.
        """
        require_stores(self._context)
        plan = prepare(self._context, approved.request())
        approved.require_same(plan.taken_for_granted(self._context))
        say = progress or _quiet
        decision = decision or session.decision()
        run = Backfill(self._context, self._epochs, self._leadership, session, runner, say, decision)
        fork, tip = run.replay(plan)
        say("sinks follow")
        self._reconciler.finish(session)
        return _result(self._context, plan, fork, tip)

    @use_case
    def dispose(self) -> DisposedBackfills:
        """Dispose of every open fork of a backfill, even if it still runs."""
        return DisposedBackfills(self._context.head().state.job, tuple(dispose_all(self._context, Session.cli())))


def _document(context: JobContext, plan: BackfillPlan) -> BackfillDocument:
    fork = fork_to_continue(context, plan)
    gives_up = [one.timeline_id for one in left_behind(context, plan.state, backfill_fingerprint(context, plan))]
    if fork is None:
        without = tuple(one for one in plan.state.timelines if one.timeline_id not in gives_up)
        decide(replace(plan.state, timelines=without), ForkRequest(Session.cli().session_id, plan.fork_point), 0)
        return document_of(context, plan, None, 0, gives_up)
    tip = consumed_by(context, context.base_metadata(plan.state, fork.head))
    left = left_to_replay(plan.ranges, plan.base_consumed, tip)
    return document_of(context, plan, fork.timeline_id, len(plan.to_replay) - len(left), gives_up)


def _quiet(step: str) -> None:
    """Ignore the step: no progress is reported."""


def _result(context: JobContext, plan: BackfillPlan, fork: TimelineId, tip: CheckpointId) -> BackfillResult:
    state = context.head().state
    own = [one for one in state.checkpoints if one.timeline == fork and one.checkpoint_id <= tip]
    figures = ("rows_in", "rows_out", "late_rows", "dropped_rows", "quality")
    return BackfillResult(
        outcome="fast_forwarded",
        job=state.job,
        fork_point=int(plan.fork_point),
        from_timeline=plan.state.live,
        previous_head=next((int(one.head) for one in state.timelines if one.timeline_id == plan.state.live), 0),
        timeline=fork,
        checkpoint_id=int(tip),
        epochs=tuple(
            ReplayedEpoch(int(one.checkpoint_id), int(one.epoch), *(one.summary.get(name) for name in figures))
            for one in own
        ),
        sinks=tuple(sorted(sink.name for sink in context.spec.sinks)),
        next_step=f"milepost run {state.job}",
    )
