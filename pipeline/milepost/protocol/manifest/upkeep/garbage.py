"""Lists of garbage lie in objects of their own, so that the manifest value stays small (I2, I8).

A list is written before the transition that names it, and its keys are garbage from that transition on. Its object is
never precious: when it is lost, its keys are reached by nothing, and the next collection lists them again. What the
state lists by itself, and lists of one stretch of time, are folded into one list now and then: each key keeps the
grace period that it had, or gets a longer one.

A list says which head it was made from, so that no two transitions ever name the same object: what one has replaced may
be deleted at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer, Outcome, advance, with_garbage
from milepost.protocol.manifest.transaction.events import GarbageDeleted, GarbageFolded
from milepost.protocol.manifest.transaction.requests import (
    FoldGarbageRequest,
    FoldPlan,
    ForgetCollectedRequest,
    GarbageDeletedRequest,
    ListProgress,
)
from milepost.protocol.records.errors import CommitConflict, ProtocolViolation
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import checkpoint_of_key, key_fault
from milepost.protocol.records.manifest_state import Garbage, GarbageList, ManifestState

MAX_KEPT_ENTRIES = 8
"""More entries than these are folded out of the state."""

MAX_LISTS = 6
"""More lists than these of the newest stretch of time are folded."""

MAX_FOLDED_KEYS = 8_192
"""No fold makes a list of more keys: a list is read and written whole."""

STRETCHES = 4
"""The grace period is so many stretches of time; lists of one stretch are folded, so a key waits a quarter longer."""


def newest_of(keys: Iterable[str]) -> CheckpointId | None:
    """Return the greatest checkpoint below which one of these keys lies; None: one lies below none, or is no key."""
    owners = [None if key_fault(key) is not None else checkpoint_of_key(key) for key in keys]
    known = [owner for owner in owners if owner is not None]
    return max(known) if known and len(known) == len(owners) else None


@dataclass(frozen=True, slots=True)
class Listing:
    """How the next version lists further keys as garbage.

    Attributes:
        fresh: the keys that become entries of the state. entries: all of the state, these included.
        named: the list of the other keys; None: there are none. lists: all of the state, this one included.
    """

    fresh: tuple[str, ...]
    entries: tuple[Garbage, ...]
    named: GarbageList | None
    lists: tuple[GarbageList, ...]


def listable(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the keys that a list may name: not a savepoint's root, for the state says what may be recorded there."""
    return tuple(sorted(key for key in keys if checkpoint_of_key(key) is not None))


def listing(state: ManifestState, keys: Iterable[str], listed: str | None, now_ms: int) -> Listing:
    """Return how keys become garbage in the next version.

    Args:
        listed: digest of the stored list of what is `listable` of them; None: all become entries of the state.
    Raises:
        ProtocolViolation: the list names nothing.
    """
    keys = tuple(keys)
    named = None if listed is None else _named(state, listable(keys), listed, now_ms)
    fresh = keys if named is None else tuple(key for key in keys if checkpoint_of_key(key) is None)
    lists = state.garbage_lists if named is None else (*state.garbage_lists, named)
    return Listing(fresh, with_garbage(state, fresh, now_ms), named, lists)


def _named(state: ManifestState, keys: tuple[str, ...], listed: str, now_ms: int) -> GarbageList:
    newest = newest_of(keys)
    if newest is None:
        raise ProtocolViolation(
            f"job {state.job}: list of garbage {listed} refused: expected keys below checkpoints. Nothing was written."
        )
    return GarbageList(listed, len(keys), 0, newest, state.version + 1, now_ms)


def plan_fold(state: ManifestState, grace_ms: int) -> FoldPlan | None:
    """Return what to fold now; None while the state is small.

    Entries are folded when there are many of them. Of many lists those of one stretch of time are: of the newest one
    when it has many itself, of an older one as soon as it has two. A savepoint's root stays an entry: whether it is
    listed decides what may be recorded there.
    """
    entries = tuple(entry for entry in state.garbage if checkpoint_of_key(entry.prefix) is not None)
    entries = entries if len(entries) > MAX_KEPT_ENTRIES else ()
    lists = _foldable(state, max(1, grace_ms // STRETCHES)) if len(state.garbage_lists) > MAX_LISTS else ()
    return FoldPlan(() if lists else entries, lists) if entries or lists else None


def _foldable(state: ManifestState, stretch_ms: int) -> tuple[GarbageList, ...]:
    """Return the lists of one stretch that one list can hold; of the oldest stretch where that is worth it."""
    newest = max(one.since_ms for one in state.garbage_lists) // stretch_ms
    for stretch in sorted({one.since_ms // stretch_ms for one in state.garbage_lists}):
        found: list[GarbageList] = []
        room = MAX_FOLDED_KEYS
        for one in reversed(state.garbage_lists):
            if one.since_ms // stretch_ms == stretch and not one.done and one.count <= room:
                found.insert(0, one)
                room -= one.count
        if len(found) > (MAX_LISTS if stretch == newest else 1):
            return tuple(found)
    return ()


def fold_garbage(state: ManifestState, request: FoldGarbageRequest, now_ms: int) -> Answer:
    """Name one list in the place of entries and lists, from any session: what is garbage stays the same.

    Raises:
        CommitConflict: what was to be folded is not listed in just this way any more: plan again.
        ProtocolViolation: the keys are not all of what is replaced.
    """
    plan = request.plan
    replaced = {one.sha256 for one in plan.lists}
    if request.listed in {one.sha256 for one in state.garbage_lists}:
        return AlreadyDone(Outcome.NOTHING_TO_FOLD, "it is folded")
    if not set(plan.garbage) <= set(state.garbage) or not set(plan.lists) <= set(state.garbage_lists):
        raise CommitConflict(
            f"job {state.job}: fold of garbage refused: it is listed in another way by now. Nothing was written."
        )
    folded = _named(state, request.keys, request.listed, now_ms)
    most = len(plan.garbage) + sum(one.count for one in plan.lists)
    if not {entry.prefix for entry in plan.garbage} <= set(request.keys) or folded.count > most:
        raise ProtocolViolation(
            f"job {state.job}: fold of garbage refused: expected all that it replaces, at most {most} keys, got"
            f" {folded.count}. Nothing was written."
        )
    parts = [(part.since_version, part.since_ms) for part in plan.garbage]
    parts += [(part.since_version, part.since_ms) for part in plan.lists]
    folded = replace(folded, since_version=max(parts)[0], since_ms=max(since_ms for _, since_ms in parts))
    kept = (*(one for one in state.garbage_lists if one.sha256 not in replaced), folded)
    return advance(
        state,
        GarbageFolded(now_ms, len(plan.garbage), tuple(sorted(replaced)), folded, request.session_id),
        garbage=tuple(entry for entry in state.garbage if entry not in plan.garbage),
        garbage_lists=tuple(sorted(kept, key=lambda one: (one.since_version, one.sha256))),
    )


def forget_deleted(
    state: ManifestState,
    request: GarbageDeletedRequest | ForgetCollectedRequest,
    now_ms: int,
    due: Iterable[Garbage],
    due_lists: Collection[GarbageList],
    which: str,
) -> Answer:
    """Forget garbage that is deleted in the store: entries of the state, and keys of lists.

    Args:
        due: entries that may be deleted. due_lists: likewise. which: ones those are, for people.
    Returns:
        A transition, or AlreadyDone: NOTHING_TO_FORGET.
    Raises:
        ProtocolViolation: one may not be deleted yet.
    """
    lists, failed = _worked_off(state, due_lists, request.lists)
    listed = {entry.prefix for entry in state.garbage}
    gone = tuple(sorted(listed.intersection(request.prefixes)))
    if not gone and lists == state.garbage_lists:
        return AlreadyDone(Outcome.NOTHING_TO_FORGET, "none of these entries is listed any more")
    early = set(gone) - {entry.prefix for entry in due}
    if early:
        raise ProtocolViolation(
            f"job {state.job}: deletion of {sorted(early)} refused: expected garbage {which}, older than"
            f" {request.grace_ms} ms and below no pending checkpoint. Nothing was written."
        )
    progress = tuple((one.sha256, one.done) for one in request.lists)
    return advance(
        state,
        GarbageDeleted(now_ms, gone, request.session_id, progress),
        garbage=(*(entry for entry in state.garbage if entry.prefix not in gone), *failed),
        garbage_lists=lists,
    )


def _worked_off(
    state: ManifestState, due: Collection[GarbageList], progress: Collection[ListProgress]
) -> tuple[tuple[GarbageList, ...], tuple[Garbage, ...]]:
    """Return the lists after some of their keys were dealt with, and the entries for the keys that failed.

    A list that is not named any more, or that got further meanwhile, is left as it is: its keys are deleted, or will be
    once more, harmlessly.

    Raises:
        ProtocolViolation: a list may not be worked on yet, or has not so many keys.
    """
    known = {one.sha256: one for one in state.garbage_lists}
    advanced = {one.sha256: one for one in progress if one.sha256 in known and one.done > known[one.sha256].done}
    early = advanced.keys() - {one.sha256 for one in due}
    long = [one for one in advanced.values() if one.done > known[one.sha256].count]
    if early or long:
        raise ProtocolViolation(
            f"job {state.job}: deletion by lists {sorted(early)} refused: expected lists that are due, and no more than"
            f" they name; got more of {len(long)}. Nothing was written."
        )
    listed = {entry.prefix for entry in state.garbage}
    failed = tuple(
        Garbage(key, known[one.sha256].since_version, known[one.sha256].since_ms)
        for one in advanced.values()
        for key in one.failed
        if key not in listed
    )
    moved = [
        replace(one, done=advanced[one.sha256].done) if one.sha256 in advanced else one for one in state.garbage_lists
    ]
    return tuple(one for one in moved if one.done < one.count), failed
