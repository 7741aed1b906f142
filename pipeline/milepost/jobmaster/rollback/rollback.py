"""Plan a rollback, and roll back.

Order of a rollback:
1. The pending epoch is swept, or taken over.
2. One manifest transition starts a new timeline at the target and makes it live.
3. Each sink follows and is confirmed (`leadership/reconciliation.py`).
Nothing is deleted: the discarded checkpoints stay, on an abandoned timeline, until retention drops them. After a crash
the next trigger, start or rollback first completes the remaining steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from milepost.epoch import CheckpointMetadata
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.table_contents import spec_edits
from milepost.jobmaster.job.use_case import use_case
from milepost.jobmaster.leadership.incarnations import Incarnations
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.leadership.reconciliation import SinkReconciler
from milepost.jobmaster.leadership.table_previews import check_tables_can_follow
from milepost.jobmaster.rollback.plan import (
    ApprovedRollback,
    RollbackPlan,
    build_plan,
    readable_target,
)
from milepost.jobmaster.rollback.rewind_points import RewindPoint, rewind_points
from milepost.jobmaster.rollback.target import require_retained, resolve_target
from milepost.protocol.manifest.timelines import job_phase
from milepost.protocol.manifest.transaction import RollbackRequest, TimelineSwitched, Transition
from milepost.protocol.records import ENDED_STATUSES, CheckpointId, Decision, ManifestState


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """What a rollback did.

    Attributes:
        outcome: ``rolled_back`` or ``nothing_to_roll_back``. timeline: the live timeline after it.
        from_timeline, from_head: the abandoned timeline and its head. discarded: checkpoints that are no longer live.
        skipped_sinks: sinks that are no longer in the spec. followed: sinks that followed the switch in this call.
    """

    outcome: str
    job: str
    checkpoint_id: int
    timeline: str
    from_timeline: str | None
    from_head: int | None
    discarded: tuple[int, ...]
    sinks: tuple[str, ...]
    skipped_sinks: tuple[str, ...]
    job_status: str
    next_step: str
    followed: tuple[str, ...]
    aborted_checkpoint: int | None


class Rollbacks:
    """The use cases of one job that move it to an earlier checkpoint."""

    def __init__(
        self, context: JobContext, leadership: Leadership, reconciler: SinkReconciler, incarnations: Incarnations
    ) -> None:
        self._context, self._leadership, self._reconciler = context, leadership, reconciler
        self._incarnations = incarnations

    def plan(self, to: str | int) -> RollbackPlan:
        """Return what a rollback would do. Changes nothing.

        Args:
            to: a checkpoint id, 0 for the empty state, or a time in ISO 8601. A time means the newest checkpoint of
                the live timeline and its ancestors that was triggered at or before it.
        Raises: NotFound, InvalidRequest, StateCorrupt (the target cannot be read).
        """
        state = self._context.head().state
        return build_plan(self._context, state, resolve_target(state, to, self._context.store.clock_ms()))

    def rewind_points(self, limit: int | None = None) -> list[RewindPoint]:
        """Return the points that the job can go back to, newest first, each with what that changes."""
        return rewind_points(self._context, limit)

    def target(self, to: str | int) -> int:
        """Return the checkpoint that `to` names now, as for `plan`. Raises NotFound, InvalidRequest."""
        return resolve_target(self._context.head().state, to, self._context.store.clock_ms())

    @use_case
    def run(
        self,
        session: Session,
        approved: ApprovedRollback,
        *,
        take_over: bool = False,
        decision: Decision | None = None,
    ) -> RollbackResult:
        """Reset state, positions, rows in flight and every sink to a retained checkpoint, on a new timeline.

        Args:
            approved: of the plan: `rollbacks.plan(to).approved`.
            take_over: abort another session's running epoch and fence it.
            decision: who decided and why, for the history.
        Raises:
            NotFound: the target is no longer retained. Busy: a lease is alive.
            PlanOutdated: head, tables or sinks differ from the plan. CommitConflict: the head moved during this call.
            InvalidRequest: a sink cannot show the target. StateCorrupt: the target, or a table at it, is damaged.
            JobNotRunnable: the clean-up of the ended job is not complete.
            StoreUnavailable, …: the job is rolled back and a sink has yet to follow; the message says so.
        """
        context = self._context
        state = context.head().state
        approved.require_current(context, state)  # before the clean-up, which may publish and so move a table
        state, _ = self._incarnations.clean_up(session, state)
        target = require_retained(state, approved.target)
        check_tables_can_follow(context, readable_target(context, state, target))
        pending = state.timeline().pending
        # A take-over reads the head again, to also abort an epoch that began in the meantime.
        self._leadership.sweep(session, take_over=take_over, adopt=False, state=None if take_over else state)
        request = RollbackRequest(
            session.session_id,
            target,
            CheckpointId(approved.head),
            tuple(sorted(sink.name for sink in context.spec.sinks)),
            decision or session.decision(),
        )
        decided = context.transact(request)
        followed = self._reconciler.finish(session, decided.state)
        event = decided.outcome.event if isinstance(decided.outcome, Transition) else None
        switched = event if isinstance(event, TimelineSwitched) else None
        aborted = None if pending is None else int(pending.checkpoint_id)
        return self._result(decided.state, switched, target, followed, aborted)

    @use_case
    def finish_reconciliation(self, session: Session) -> tuple[str, ...]:
        """Make every remaining sink follow the newest switch. Returns their names. Raises as `run`."""
        return self._reconciler.finish(session)

    def _result(
        self,
        state: ManifestState,
        switched: TimelineSwitched | None,
        target: CheckpointId,
        followed: tuple[str, ...],
        aborted: int | None,
    ) -> RollbackResult:
        metadata = self._context.base_metadata(state, target)
        known = {sink.name for sink in self._context.spec.sinks}
        ended = state.status in ENDED_STATUSES
        return RollbackResult(
            outcome="nothing_to_roll_back" if switched is None else "rolled_back",
            job=state.job,
            checkpoint_id=int(target),
            timeline=state.live if switched is None else switched.timeline,
            from_timeline=None if switched is None else switched.from_timeline,
            from_head=None if switched is None else int(switched.from_head),
            discarded=() if switched is None else tuple(map(int, switched.discarded)),
            sinks=tuple(sorted(known)),
            skipped_sinks=() if metadata is None else tuple(sorted(set(metadata.tables) - known)),
            job_status=job_phase(state).value,
            next_step=_next_step(self._context, state.job, metadata, ended=ended),
            followed=followed,
            aborted_checkpoint=aborted,
        )


def _next_step(context: JobContext, job: str, metadata: CheckpointMetadata | None, *, ended: bool) -> str:
    """Return how to continue the job: first the edits to the spec, if its tables are not those of the target."""
    command = f"milepost start {job} opens it again" if ended else f"milepost run {job}"
    edits = spec_edits(context, metadata)
    return f"write {', '.join(edits)}; then {command}" if edits else command
