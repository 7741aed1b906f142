"""Pruning rules say when published files of a sink's table may go (I8); what it needs is the sink's to say.

A file that a complete look at one manifest version found needed by neither the newest head of its table nor a retained
checkpoint is needed by no later version: checkpoints leave the retained ones and never come back, new ones name new
files, and a table only ever returns to what it showed, or would show, at a retained one. So a list of such files is no
authority. It proves since when nobody can have begun to read them; what is deleted is proven again at that moment.
"""

from __future__ import annotations

from milepost.protocol.records.ids import CheckpointId, FencingToken, SessionId
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.retention.lineage import lineage
from milepost.protocol.retention.retention import lowest_pending

_CHECKPOINTS_PER_GRACE = 10


def look_is_due(state: ManifestState, grace_ms: int) -> bool:
    """Return whether the epoch that has just completed is one that looks for files to prune.

    A look reads what every retained checkpoint needs, and nothing can go sooner than a grace period later: so the first
    epoch of each grace period looks, of each two when more than ten checkpoints are retained, of each three beyond
    twenty, and so on. A clock that stands still makes nothing due twice; one epoch that looks in vain does no harm.

    Args:
        state: before this epoch's subsumption, so that the checkpoint before the head is still there.
    """
    completed = lineage(state, state.timeline())
    if len(completed) < 2:
        return bool(completed)
    every_ms = grace_ms * -(-len(state.checkpoints) // _CHECKPOINTS_PER_GRACE)
    before, newest = (one.trigger_time_ms // every_ms for one in completed[-2:])
    return before != newest


def may_be_listed(state: ManifestState, checkpoint_id: CheckpointId, token: FencingToken) -> bool:
    """Return whether a file that this token staged can be garbage of this job at all.

    It cannot when its checkpoint is pending or newer than a pending one, or when no session of the job can have
    written it: then it is somebody else's.
    """
    lowest = lowest_pending(state)
    return 0 < checkpoint_id < (state.next_checkpoint_id if lowest is None else lowest) and token <= state.version


def may_prune(
    state: ManifestState, session_id: SessionId | None, since_version: int, since_ms: int, now_ms: int, grace_ms: int
) -> bool:
    """Return whether files may be deleted that were listed at `since_version`, when they are still needed by nothing.

    As for the job's own garbage: the grace period is over, so that whoever had looked at the table before has read what
    it found; every checkpoint that is pending now was triggered after the listing; and a session that leads, leads
    with a token that was granted after it.

    Args:
        state: a freshly read head. session_id: who deletes; None: somebody who leads nothing.
        since_ms, now_ms: of the clock of the sink's store.
    """
    if session_id is not None:
        leader = state.timeline().leader
        if leader is None or leader.session_id != session_id or leader.token <= since_version:
            return False
    triggered = [timeline.pending.prefixes[0] for timeline in state.timelines if timeline.pending is not None]
    return now_ms - since_ms >= grace_ms and all(token > since_version for token in triggered)
