"""Compact the manifest log: replace old entries by tombstones, a bounded number per epoch (I6).

Order of writes: the tombstones, then the record of the compaction, which the epoch's subsumption carries. After a crash
in between, the next session finds tombstones that are not recorded yet, and continues.
"""

from __future__ import annotations

from milepost.jobmaster.job.context import JobContext
from milepost.protocol.manifest.transaction import RecordCompactionRequest
from milepost.protocol.manifest.upkeep import compactable, horizon
from milepost.protocol.records import ManifestState, SessionId

ENTRIES_PER_EPOCH = 64
"""An epoch makes fewer than ten entries, so a backlog shrinks quickly."""

_ENTRIES_AT_ONCE = 1_024


def compact_some(context: JobContext, state: ManifestState) -> int:
    """Compact up to `ENTRIES_PER_EPOCH` entries, as of a head. Returns the version up to which all are tombstones."""
    return context.log.compact(compactable(state, ENTRIES_PER_EPOCH))


def record_backlog(context: JobContext, session_id: SessionId, state: ManifestState, compacted: int) -> None:
    """Record a compaction that no subsumption carried, once it has `ENTRIES_PER_EPOCH` entries.

    Args:
        state: the head that the compaction was based on.
    """
    if compacted - state.compacted >= ENTRIES_PER_EPOCH:
        _record(context, session_id, compacted)


def compact_all(context: JobContext, session_id: SessionId) -> None:
    """Compact everything older than what is retained now. Recording that makes new entries, which are not compacted."""
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
