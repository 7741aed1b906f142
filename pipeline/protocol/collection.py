"""What a collection of garbage changes: it leads nothing, so its transitions rest on proof alone (I8).

Subsumption is the leader's, because it follows the policy of a spec, and an outdated session may have an old one. What
`gc` does follows from no policy: an object is listed because a walk of every root of one manifest version did not reach
it, and the transition is the very next version, so nothing can have changed in between; an entry is forgotten because
it was listed for longer than any session that could have looked at it may live.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.protocol.answers import AlreadyDone, Answer, Outcome, advance, with_garbage
from pipeline.protocol.errors import CommitConflict, ProtocolViolation
from pipeline.protocol.events import GarbageDeleted, GarbageListed
from pipeline.protocol.ids import SessionId
from pipeline.protocol.preconditions import check_garbage
from pipeline.protocol.records import ManifestState
from pipeline.protocol.retention import collectable

MAX_LISTED = 1_000
"""At most so many entries are listed at once: the manifest value stays small, and the next collection goes on."""


@dataclass(frozen=True, slots=True)
class ListGarbageRequest:
    """List what a complete walk of every root did not reach.

    Attributes:
        walked_version: of the manifest value that the walk was made of.
        garbage: keys and directories, what `retention.unreferenced` answered.
    """

    session_id: SessionId
    walked_version: int
    garbage: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CollectedRequest:
    """State that these entries of `retention.collectable` are deleted, so that the list forgets them."""

    session_id: SessionId
    prefixes: tuple[str, ...]
    grace_ms: int


def list_garbage(state: ManifestState, request: ListGarbageRequest, now_ms: int) -> Answer:
    """List unreachable objects as garbage, from any session: phase one of their deletion.

    Raises:
        CommitConflict: the manifest has moved on since the walk: walk again.
        ProtocolViolation: an entry could be live, or there are too many.
    """
    fresh = set(request.garbage) - {entry.prefix for entry in state.garbage}
    if not fresh:
        return AlreadyDone(Outcome.NOTHING_TO_LIST, "all of it is listed")
    if state.version != request.walked_version:
        raise CommitConflict(
            f"job {state.job}: listing of garbage refused: the walk was of version {request.walked_version}, the head"
            f" is {state.version}. Nothing was written. Walk again.",
            walked_version=request.walked_version,
            version=state.version,
        )
    if len(fresh) > MAX_LISTED:
        raise ProtocolViolation(
            f"job {state.job}: listing of garbage refused: {len(fresh)} entries, at most {MAX_LISTED} at once."
            " Nothing was written."
        )
    garbage = tuple(sorted(fresh))
    check_garbage(state, state.checkpoints, garbage)
    return advance(
        state,
        GarbageListed(now_ms, request.walked_version, garbage, request.session_id),
        garbage=with_garbage(state, garbage, now_ms),
    )


def forget_collected(state: ManifestState, request: CollectedRequest, now_ms: int) -> Answer:
    """Forget garbage that a session which leads nothing has deleted in the store: phase two.

    Raises:
        ProtocolViolation: an entry may not be deleted yet.
    """
    listed = {entry.prefix for entry in state.garbage}
    gone = tuple(sorted(listed.intersection(request.prefixes)))
    if not gone:
        return AlreadyDone(Outcome.NOTHING_TO_FORGET, "none of these entries is listed any more")
    early = set(gone) - {entry.prefix for entry in collectable(state, now_ms, request.grace_ms)}
    if early:
        raise ProtocolViolation(
            f"job {state.job}: deletion of {sorted(early)} refused: expected garbage listed before every pending"
            f" checkpoint, older than {request.grace_ms} ms and below no pending checkpoint. Nothing was written."
        )
    return advance(
        state,
        GarbageDeleted(now_ms, gone, request.session_id),
        garbage=tuple(entry for entry in state.garbage if entry.prefix not in gone),
    )
