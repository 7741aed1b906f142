"""Log compaction: replace old entries by tombstones and record how far (I6).

Nothing needs an entry older than everything retained as a whole: its tombstone has all that a replay, an audit or a
report reads. The horizon never moves back: dropped checkpoints are never retained again, and forks and switches end.
(While the end of an incarnation is dirty, nothing is compacted.) So an entry below the horizon of any head may be
replaced at any later time, by any session, repeatedly, even one that slept in between: all write the same bytes.

The order is: replace the bodies, then record it. After a crash in between, the next session finds tombstones and
continues.
"""

from __future__ import annotations

from milepost.errors import ProtocolViolation
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer, Outcome, advance
from milepost.protocol.manifest.transaction.events import LogCompacted
from milepost.protocol.manifest.transaction.requests import RecordCompactionRequest
from milepost.protocol.records.manifest_state import CleanUp, ManifestState
from milepost.protocol.retention.ancestry import open_forks


def horizon(state: ManifestState) -> int:
    """Return the first version whose entry must stay whole; all older ones may become tombstones.

    Entries that stay whole: the head; the completion of each retained checkpoint (including those of savepoints) and
    everything after it; grants of a pending checkpoint; the opening of an open fork; a switch that a sink must still
    follow; and, while an end is dirty, everything not compacted yet. With head 50, retained checkpoints with tokens 31
    and 44, and a pending checkpoint with tokens 47 and 49, the horizon is 31.
    """
    if _is_dirty(state):
        return state.compacted + 1
    needed = [state.version]
    needed += [int(checkpoint.token) for checkpoint in state.checkpoints]
    pending = [timeline.pending for timeline in state.timelines if timeline.pending is not None]
    needed += [min((checkpoint.token, *checkpoint.prefixes)) for checkpoint in pending]
    needed += [int(fork.timeline_id.removeprefix("t")) for fork in open_forks(state)]
    needed += [] if state.reconciliation is None else [state.reconciliation.decision]
    return min(needed)


def compactable(state: ManifestState, at_most: int) -> range:
    """Return the versions to compact next, ascending: those from the first whole one up to the horizon."""
    first = state.compacted + 1
    return range(first, max(first, min(horizon(state), first + at_most)))


def compacted_through(state: ManifestState, through: int) -> int:
    """Return the version up to which all entries are tombstones, given a session's report; it never decreases.

    Raises:
        ProtocolViolation: an entry up to there must stay whole.
    """
    if through <= state.compacted:
        return state.compacted
    if through >= horizon(state):
        raise ProtocolViolation(
            f"job {state.job}: compaction up to version {through} refused: expected one below {horizon(state)}, for"
            " what follows is needed whole. Nothing was written."
        )
    return through


def record_compaction(state: ManifestState, request: RecordCompactionRequest, now_ms: int) -> Answer:
    """Record how far the log is compacted. A fact: accepted from any session, monotone.

    While the end of an incarnation is dirty nothing is recorded; sessions report again after it.

    Raises:
        ProtocolViolation: an entry up to there must stay whole.
    """
    if _is_dirty(state):
        return AlreadyDone(Outcome.ALREADY_COMPACTED, f"job {state.job} has an end to clean up: recorded after that")
    through = compacted_through(state, request.through)
    if through == state.compacted:
        return AlreadyDone(Outcome.ALREADY_COMPACTED, f"the log is compacted up to version {through}")
    return advance(state, LogCompacted(now_ms, through, request.session_id), compacted=through)


def _is_dirty(state: ManifestState) -> bool:
    return any(result.clean_up is CleanUp.DIRTY for result in state.results)
