"""Compaction turns old entries of the log into tombstones, and the state says how far that is (I6).

An entry that is older than everything retained is needed by nobody whole: what a replay, an audit and a report ask of
it, its tombstone has. But for the time while the end of an incarnation is dirty, when nothing more is compacted, the
horizon never goes back (checkpoints leave the retained ones and never come back, forks and switches end), so an entry
below the horizon of any head may be replaced at any later time, by anybody, twice, or by a session that slept: each
writes the same bytes. Order: replace the bodies, then say so; stopped between, the next one finds tombstones and goes
on.
"""

from __future__ import annotations

from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer, Outcome, advance
from milepost.protocol.manifest.transaction.events import LogCompacted
from milepost.protocol.manifest.transaction.requests import RecordCompactionRequest
from milepost.protocol.records.errors import ProtocolViolation
from milepost.protocol.records.manifest_state import CleanUp, ManifestState
from milepost.protocol.retention.ancestry import open_forks


def horizon(state: ManifestState) -> int:
    """Return the first version whose entry stays whole; every older one may become a tombstone.

    Whole stay: the head; what completed a retained checkpoint, savepoints' included, and all that followed; what is
    pending; the opening of a fork that is open; the switch that a sink has yet to follow; and what the end of an
    incarnation has yet to clean up.
    """
    if _is_dirty(state):
        return state.compacted + 1
    needed = [state.version]
    needed += [int(checkpoint.token) for checkpoint in state.checkpoints]
    needed += [min((one.pending.token, *one.pending.prefixes)) for one in state.timelines if one.pending is not None]
    needed += [int(one.timeline_id.removeprefix("t")) for one in open_forks(state)]
    needed += [] if state.reconciliation is None else [state.reconciliation.decision]
    return min(needed)


def compactable(state: ManifestState, at_most: int) -> range:
    """Return the versions to compact next, ascending: those after the compacted ones, up to the horizon."""
    first = state.compacted + 1
    return range(first, max(first, min(horizon(state), first + at_most)))


def compacted_through(state: ManifestState, through: int) -> int:
    """Return up to which version all entries are tombstones, once a session says so; it never goes back.

    Raises:
        ProtocolViolation: an entry up to there stays whole.
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
    """Record how far the log is compacted: a fact, accepted from any session, monotone.

    Not while the end of an incarnation is dirty: whoever replaced entries before it may come to say so after it.

    Raises:
        ProtocolViolation: an entry up to there stays whole.
    """
    if _is_dirty(state):
        return AlreadyDone(Outcome.ALREADY_COMPACTED, f"job {state.job} has an end to clean up: recorded after that")
    through = compacted_through(state, request.through)
    if through == state.compacted:
        return AlreadyDone(Outcome.ALREADY_COMPACTED, f"the log is compacted up to version {through}")
    return advance(state, LogCompacted(now_ms, through, request.session_id), compacted=through)


def _is_dirty(state: ManifestState) -> bool:
    return any(result.clean_up is CleanUp.DIRTY for result in state.results)
