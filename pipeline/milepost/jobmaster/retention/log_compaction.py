"""Compaction of the manifest log: old entries become tombstones, a bounded number at once (I6).

Order: the bodies, then the fact, which the subsumption of the same epoch carries. Stopped between, whoever comes next
meets tombstones where the state does not know of them yet, and goes on.
"""

from __future__ import annotations

from milepost.jobmaster.job.context import JobContext
from milepost.protocol.manifest.transaction.requests import RecordCompactionRequest
from milepost.protocol.manifest.upkeep.compaction import compactable, horizon
from milepost.protocol.records.ids import SessionId
from milepost.protocol.records.manifest_state import ManifestState

ENTRIES_PER_EPOCH = 64
"""An epoch makes fewer than ten entries, so that a log of an older program is caught up with soon."""

_ENTRIES_AT_ONCE = 1_024


def compact_some(context: JobContext, state: ManifestState) -> int:
    """Compact what one epoch may, as of a head. Returns up to which version all entries are tombstones."""
    return context.log.compact(compactable(state, ENTRIES_PER_EPOCH))


def record_backlog(context: JobContext, session_id: SessionId, state: ManifestState, compacted: int) -> None:
    """Record a compaction that no subsumption carried, once it is as much as an epoch may do: less is not worth it.

    Args:
        state: the head that the entries were compacted as of.
    """
    if compacted - state.compacted >= ENTRIES_PER_EPOCH:
        _record(context, session_id, compacted)


def compact_all(context: JobContext, session_id: SessionId) -> None:
    """Compact all that is older than everything retained as of now: to say so makes an entry, which is left."""
    goal = horizon(context.head().state)
    while versions := compactable(context.head().state, _ENTRIES_AT_ONCE):
        if versions.start >= goal:
            return
        through = context.log.compact(versions)
        if through >= versions.start:
            _record(context, session_id, through)
        if through < versions[-1]:
            return


def _record(context: JobContext, session_id: SessionId, through: int) -> None:
    context.record(RecordCompactionRequest(session_id, through))
