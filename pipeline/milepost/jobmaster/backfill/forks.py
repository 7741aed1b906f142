"""Open, find, continue and dispose of the forks of backfills.

A fork is identified by the session that opened it (`backfill:<fingerprint>/<session>`). The fingerprint is a digest of
everything that determines the contents of its checkpoints, so only a fork with the same fingerprint may be continued.
Forks of imports have other sessions and are never touched here.
"""

from __future__ import annotations

import hashlib
import json
import logging

from milepost.errors import Busy, CommitConflict
from milepost.jobmaster.backfill.consumed_input import consumed_by
from milepost.jobmaster.backfill.plan import BackfillPlan
from milepost.jobmaster.backfill.replay import left_to_replay
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.fork_event import fork_event
from milepost.jobmaster.job.session import Session, is_provably_alive, is_provably_dead
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.reports.health.unfinished_backfills import OPENED_BY, forks_of_backfills
from milepost.protocol.manifest.transaction import (
    DisposeForkRequest,
    ForkRequest,
    ThawRequest,
    TimelineForked,
    Transition,
    active_freeze,
)
from milepost.protocol.records import ManifestState, SessionId, Timeline, TimelineId

_LOG = logging.getLogger(__name__)


def backfill_fingerprint(context: JobContext, plan: BackfillPlan) -> str:
    """Return a digest of the fork point, the request, the code, the spec and the live timeline."""
    wanted = plan.request
    document = [
        int(plan.fork_point),
        wanted.to_us,
        wanted.ranges_per_epoch,
        wanted.allow_non_restored_state,
        plan.code.hash,
        context.job.spec_hash,
        plan.state.live,
    ]
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()[:16]


def open_fork(context: JobContext, session: Session, plan: BackfillPlan) -> TimelineId:
    """Open a fork at the plan's fork point. Raises NotFound: no longer retained. InvalidRequest: too many forks."""
    opener = SessionId(f"{OPENED_BY}{backfill_fingerprint(context, plan)}/{session.session_id}")
    decided = context.transact(ForkRequest(opener, plan.fork_point))
    assert isinstance(decided.outcome, Transition)
    event = decided.outcome.event
    assert isinstance(event, TimelineForked)
    return event.timeline.timeline_id


def fork_to_continue(context: JobContext, plan: BackfillPlan) -> Timeline | None:
    """Return the open fork of an interrupted backfill with this fingerprint; of several, the most advanced one."""
    fingerprint = backfill_fingerprint(context, plan)
    own = [one for one, found in forks_of_backfills(context, plan.state) if found == fingerprint]
    return max((one for one in own if _is_replay_of(context, plan, one)), key=lambda one: one.head, default=None)


def check_idle(context: JobContext, session: Session, fork: Timeline) -> None:
    """Check that no other session works on the fork, and abort what a dead session left pending there.

    Between two epochs a session's only sign of life is its freeze of the live timeline. A session that is overlooked
    then finds the fork busy at its next step, and stops.

    Raises: Busy: another session works on it.
    """
    leader = fork.leader
    if leader is None or leader.session_id == session.session_id or is_provably_dead(leader.holder):
        return
    working = is_provably_alive(leader.holder)
    if not working and fork.pending is not None:
        try:
            Leadership(context, fork.timeline_id).sweep(session, take_over=False)
        except Busy:
            working = True
    elif not working:
        frozen = active_freeze(context.head().state.timeline(), context.store.clock_ms())
        working = frozen is not None and frozen.session_id == leader.session_id
    if working:
        raise Busy(
            f"job {context.spec.name}: session {leader.session_id} on {leader.holder.host} (pid {leader.holder.pid}) "
            f"runs the same backfill on fork {fork.timeline_id}. Nothing was changed.",
            hint=f"wait for it, or dispose of it: milepost backfill {context.spec.name} --dispose",
            fork=fork.timeline_id,
        )


def dispose_left_behind(context: JobContext, session: Session, keep: str) -> list[TimelineId]:
    """Dispose of the abandoned forks of earlier backfills. Returns the disposed ones.

    Args:
        keep: the fingerprint of the backfill that begins.
    """
    gone = left_behind(context, context.head().state, keep)
    for fork in gone:
        _dispose(context, session, fork)
    return [fork.timeline_id for fork in gone]


def left_behind(context: JobContext, state: ManifestState, keep: str) -> list[Timeline]:
    """Return the abandoned forks of backfills with another fingerprint."""
    found = [one for one, fingerprint in forks_of_backfills(context, state) if fingerprint != keep]
    return [one for one in found if _is_left_behind(context, state, one)]


def dispose_all(context: JobContext, session: Session) -> list[TimelineId]:
    """Dispose of every open fork of a backfill. A running one is fenced. Returns the disposed ones."""
    gone = [fork for fork, _ in forks_of_backfills(context, context.head().state)]
    for fork in gone:
        _dispose(context, session, fork)
    return [fork.timeline_id for fork in gone]


def thaw_for(context: JobContext, fork: Timeline) -> None:
    """Release the freeze of the live timeline by a session that worked on the fork, if there is one."""
    frozen = context.head().state.timeline().frozen
    opener = fork_event(context, fork).session_id.partition("/")[2]
    sessions = {opener, fork.leader.session_id if fork.leader is not None else opener}
    if frozen is not None and frozen.session_id in sessions:
        _LOG.info("session %s has ended: its freeze of the live timeline is released", frozen.session_id)
        context.transact(ThawRequest(frozen.session_id))


def _dispose(context: JobContext, session: Session, fork: Timeline) -> None:
    _LOG.info("fork %s is disposed of", fork.timeline_id)
    context.transact(DisposeForkRequest(session.session_id, fork.timeline_id))
    thaw_for(context, fork)


def _is_replay_of(context: JobContext, plan: BackfillPlan, fork: Timeline) -> bool:
    tip = consumed_by(context, context.base_metadata(plan.state, fork.head))
    try:
        left_to_replay(plan.ranges, plan.base_consumed, tip)
    except CommitConflict:
        return False
    return True


def _is_left_behind(context: JobContext, state: ManifestState, fork: Timeline) -> bool:
    """Return whether a fork is abandoned: its holder is dead, or it has been idle for longer than an epoch takes.

    Misjudging a live fork fences it, which wastes its work but is safe.
    """
    holder = fork.leader.holder if fork.leader is not None else None
    if holder is not None and is_provably_dead(holder):
        return True
    if holder is not None and is_provably_alive(holder):
        return False
    head = state.checkpoint(fork.head)
    signs_ms = [fork_event(context, fork).at_ms, 0 if head is None else head.completed_time_ms]
    signs_ms += [] if fork.pending is None else [fork.pending.deadline_ms]
    return context.store.clock_ms() - max(signs_ms) > context.timeout_ms
