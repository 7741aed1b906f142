"""A collection of garbage leads nothing, so its transitions rest on proof alone (I8).

Subsumption is the leader's, because it follows the policy of a spec, and an outdated session may have an old one. What
`gc` does follows from no policy: an object is listed because a walk of every root of one manifest version did not reach
it, and the transition is the very next version, so nothing can have changed in between; an entry is forgotten because
it was listed for longer than any session that could have looked at it may live.
"""

from __future__ import annotations

from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer, Outcome, advance
from milepost.protocol.manifest.transaction.events import GarbageListed
from milepost.protocol.manifest.transaction.preconditions import check_garbage
from milepost.protocol.manifest.transaction.requests import ForgetCollectedRequest, ListGarbageRequest
from milepost.protocol.manifest.upkeep.garbage import forget_deleted, listing
from milepost.protocol.manifest.upkeep.pins import without_overdue
from milepost.protocol.records.errors import CommitConflict, ProtocolViolation
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.retention.retention import collectable, collectable_lists

MAX_LISTED = 1_000
"""At most so many entries are listed at once: the manifest value stays small, and the next collection goes on."""


def list_garbage(state: ManifestState, request: ListGarbageRequest, now_ms: int) -> Answer:
    """List unreachable objects as garbage, from any session: phase one of their deletion.

    Pins whose time is over leave the list with it: of a job that has ended no trigger ever takes them off.

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
    state = without_overdue(state, now_ms)
    check_garbage(state, state.checkpoints, garbage)
    found = listing(state, garbage, request.listed, now_ms)
    return advance(
        state,
        GarbageListed(now_ms, request.walked_version, found.fresh, request.session_id, found.named),
        garbage=found.entries,
        garbage_lists=found.lists,
    )


def forget_collected(state: ManifestState, request: ForgetCollectedRequest, now_ms: int) -> Answer:
    """Forget garbage that a session which leads nothing has deleted in the store: phase two.

    Raises:
        ProtocolViolation: an entry may not be deleted yet.
    """
    return forget_deleted(
        state,
        request,
        now_ms,
        collectable(state, now_ms, request.grace_ms),
        collectable_lists(state, now_ms, request.grace_ms),
        "listed before every pending checkpoint",
    )
