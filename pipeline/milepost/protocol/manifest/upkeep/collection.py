"""Garbage collection by a session that does not lead. Its transitions rest on proof alone (I8).

Subsumption belongs to the leader, because it follows the policy of a spec, and an outdated session may have an old
one. `gc` follows no policy. It lists an object because a walk of every root of one manifest version did not reach it,
and its transition is the very next version, so nothing can have changed in between. It removes an entry because it
was listed for longer than any session that could have seen the object may live.
"""

from __future__ import annotations

from milepost.errors import CommitConflict, ProtocolViolation
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer, Outcome, advance
from milepost.protocol.manifest.transaction.events import GarbageListed
from milepost.protocol.manifest.transaction.preconditions import check_garbage
from milepost.protocol.manifest.transaction.requests import ForgetCollectedRequest, ListGarbageRequest
from milepost.protocol.manifest.upkeep.garbage import add_garbage, forget_deleted
from milepost.protocol.manifest.upkeep.pins import without_expired_pins
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.retention.retention import collectable, collectable_lists

MAX_LISTED = 1_000
"""Maximum number of entries per transition: the manifest stays small, and the next collection continues."""


def list_garbage(state: ManifestState, request: ListGarbageRequest, now_ms: int) -> Answer:
    """List unreachable objects as garbage, from any session: the first phase of their deletion.

    Expired pins are removed as well, because in a job that has ended no trigger ever removes them.

    Raises:
        CommitConflict: the manifest has changed since the walk: walk again.
        ProtocolViolation: an entry could be live, or there are too many.
    """
    new_entries = set(request.garbage) - {entry.prefix for entry in state.garbage}
    if not new_entries:
        return AlreadyDone(Outcome.NOTHING_TO_LIST, "all of it is listed")
    if state.version != request.walked_version:
        raise CommitConflict(
            f"job {state.job}: listing of garbage refused: the walk was of version {request.walked_version}, the head"
            f" is {state.version}. Nothing was written. Walk again.",
            walked_version=request.walked_version,
            version=state.version,
        )
    if len(new_entries) > MAX_LISTED:
        raise ProtocolViolation(
            f"job {state.job}: listing of garbage refused: {len(new_entries)} entries, at most {MAX_LISTED} at once."
            " Nothing was written."
        )
    garbage = tuple(sorted(new_entries))
    state = without_expired_pins(state, now_ms)
    check_garbage(state, state.checkpoints, garbage, state.floors)
    update = add_garbage(state, garbage, request.list_sha256, now_ms)
    return advance(
        state,
        GarbageListed(now_ms, request.walked_version, update.new_entries, request.session_id, update.new_list),
        garbage=update.entries,
        garbage_lists=update.lists,
    )


def forget_collected(state: ManifestState, request: ForgetCollectedRequest, now_ms: int) -> Answer:
    """Remove garbage from the state that a session without leadership deleted: the second phase.

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
