"""When published files of a sink's table may be deleted (I8). The sink decides which files its table needs.

Suppose a complete scan at one manifest version finds that neither the table's newest head nor any retained checkpoint
needs a file. Then no later version needs it: dropped checkpoints are never retained again, new checkpoints name new
files, and a table only ever returns to what it showed, or would have shown, at a retained checkpoint. So a list of
such files grants no permission to delete. It only proves since when no reader can have started to read them; the need
is checked again at the moment of deletion.
"""

from __future__ import annotations

from milepost.protocol.records.ids import CheckpointId, FencingToken, SessionId
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.retention.ancestry import timeline_ancestry
from milepost.protocol.retention.retention import lowest_pending

_CHECKPOINTS_PER_GRACE = 10


def is_scan_due(state: ManifestState, grace_ms: int) -> bool:
    """Return whether the epoch that has just completed must scan for files to prune.

    A scan reads what every retained checkpoint needs, and nothing can be deleted sooner than a grace period later. So
    the first epoch of each grace period scans; with more than ten retained checkpoints the first of every two grace
    periods, with more than twenty of every three, and so on. If the clock stands still no scan is due twice, and a
    scan that finds nothing does no harm.

    Args:
        state: before this epoch's subsumption, so that the checkpoint before the head is still included.
    """
    completed = timeline_ancestry(state, state.timeline())
    if len(completed) < 2:
        return bool(completed)
    every_ms = grace_ms * -(-len(state.checkpoints) // _CHECKPOINTS_PER_GRACE)
    before, newest = (checkpoint.trigger_time_ms // every_ms for checkpoint in completed[-2:])
    return before != newest


def may_be_listed(state: ManifestState, checkpoint_id: CheckpointId, token: FencingToken) -> bool:
    """Return whether a file that this token staged can ever be this job's garbage.

    It cannot if its checkpoint is pending or newer than a pending one, or if no session of this job can have written
    it: then it belongs to another job.
    """
    lowest = lowest_pending(state)
    return 0 < checkpoint_id < (state.next_checkpoint_id if lowest is None else lowest) and token <= state.version


def may_prune(
    state: ManifestState, session_id: SessionId | None, since_version: int, since_ms: int, now_ms: int, grace_ms: int
) -> bool:
    """Return whether files that were listed at `since_version`, and are still not needed, may be deleted.

    The rules are those of the job's own garbage. The grace period is over, so earlier readers of the table have
    finished. Every pending checkpoint was triggered after the listing. A leading session's token was granted after it.

    Args:
        state: a freshly read head.
        session_id: the session that deletes; None: a session that does not lead.
        since_ms, now_ms: by the clock of the sink's store.
    """
    if session_id is not None:
        leader = state.timeline().leader
        if leader is None or leader.session_id != session_id or leader.token <= since_version:
            return False
    triggered = [timeline.pending.prefixes[0] for timeline in state.timelines if timeline.pending is not None]
    return now_ms - since_ms >= grace_ms and all(token > since_version for token in triggered)
