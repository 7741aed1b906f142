"""Garbage lists: keep most garbage in separate objects, so that the manifest stays small (I2, I8).

A list is written before the transition that names it, and its keys are garbage from that transition on. Losing a list
is harmless: its keys are unreachable, so the next collection lists them again. Entries of the state, and lists of the
same period, are folded into one list from time to time. Each key keeps its grace period or gets a longer one.

A list includes the version of the head it was made from, so two transitions never name the same object, and a list that
was replaced may be deleted immediately.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from milepost.errors import CommitConflict, ProtocolViolation
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer, Outcome, advance, with_garbage
from milepost.protocol.manifest.transaction.events import GarbageDeleted, GarbageFolded
from milepost.protocol.manifest.transaction.requests import (
    FoldGarbageRequest,
    FoldPlan,
    ForgetCollectedRequest,
    GarbageDeletedRequest,
    ListProgress,
)
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import garbage_checkpoint, key_fault
from milepost.protocol.records.manifest_state import Garbage, GarbageList, ManifestState

MAX_STATE_ENTRIES = 8
"""Entries beyond this number are folded into a list."""

MAX_LISTS = 6
"""Lists of the newest period beyond this number are folded."""

MAX_FOLDED_KEYS = 8_192
"""Maximum number of keys in a folded list: lists are read and written as a whole."""

PERIODS_PER_GRACE = 4
"""Periods per grace period. Only lists of the same period are folded, so a key waits a quarter longer at most."""


def newest_checkpoint_of(keys: Iterable[str]) -> CheckpointId | None:
    """Return the greatest checkpoint of these keys, by `garbage_checkpoint`; None: a key has none, or is invalid."""
    owners = [None if key_fault(key) is not None else garbage_checkpoint(key) for key in keys]
    valid = [owner for owner in owners if owner is not None]
    return max(valid) if valid and len(valid) == len(owners) else None


@dataclass(frozen=True, slots=True)
class GarbageUpdate:
    """Garbage of the next version, after adding keys.

    Attributes:
        new_entries: added keys that become entries of the state. entries: all entries of the state.
        new_list: the list of the other added keys; None: there are none. lists: all lists of the state.
    """

    new_entries: tuple[str, ...]
    entries: tuple[Garbage, ...]
    new_list: GarbageList | None
    lists: tuple[GarbageList, ...]


def listable(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the keys that a list may name. Savepoint roots stay in the state, which decides what is recorded there."""
    return tuple(sorted(key for key in keys if garbage_checkpoint(key) is not None))


def add_garbage(state: ManifestState, keys: Iterable[str], list_sha256: str | None, now_ms: int) -> GarbageUpdate:
    """Return the garbage of the next version, with these keys added.

    Args:
        list_sha256: digest of the stored list of the `listable` keys; None: all keys become entries of the state.
    Raises:
        ProtocolViolation: the list would be empty.
    """
    keys = tuple(keys)
    new_list = None if list_sha256 is None else _new_list(state, listable(keys), list_sha256, now_ms)
    new_entries = keys if new_list is None else tuple(key for key in keys if garbage_checkpoint(key) is None)
    lists = state.garbage_lists if new_list is None else (*state.garbage_lists, new_list)
    return GarbageUpdate(new_entries, with_garbage(state, new_entries, now_ms), new_list, lists)


def _new_list(state: ManifestState, keys: tuple[str, ...], list_sha256: str, now_ms: int) -> GarbageList:
    newest = newest_checkpoint_of(keys)
    if newest is None:
        raise ProtocolViolation(
            f"job {state.job}: garbage list {list_sha256} refused: expected keys below checkpoints or floors."
            " Nothing was written."
        )
    return GarbageList(list_sha256, len(keys), 0, newest, state.version + 1, now_ms)


def plan_fold(state: ManifestState, grace_ms: int) -> FoldPlan | None:
    """Return what to fold now; None while the state is small.

    Entries are folded if there are many. Lists are folded if there are many, and then those of a single period: an
    older period as soon as it has two, the newest one only if it has many by itself. Savepoint roots stay entries,
    because the state decides what may be recorded there.

    With a grace period of 40 ms, a period is 10 ms. Of lists made at 1, 5 | 12 | 25, 26, 27, 28 ms the first two are
    folded. Of lists made at 1 | 12 | 25, 26, 27, 28, 29 ms none: the old periods have one list each, the newest 5.
    """
    entries = tuple(entry for entry in state.garbage if garbage_checkpoint(entry.prefix) is not None)
    entries = entries if len(entries) > MAX_STATE_ENTRIES else ()
    lists = _foldable(state, max(1, grace_ms // PERIODS_PER_GRACE)) if len(state.garbage_lists) > MAX_LISTS else ()
    return FoldPlan(() if lists else entries, lists) if entries or lists else None


def _foldable(state: ManifestState, period_ms: int) -> tuple[GarbageList, ...]:
    """Return the lists of one period that fit in one list; of the oldest period for which that is worthwhile."""
    newest_period = max(garbage.since_ms for garbage in state.garbage_lists) // period_ms
    for period in sorted({garbage.since_ms // period_ms for garbage in state.garbage_lists}):
        lists: list[GarbageList] = []
        remaining = MAX_FOLDED_KEYS
        for garbage in reversed(state.garbage_lists):
            if garbage.since_ms // period_ms == period and not garbage.done and garbage.count <= remaining:
                lists.insert(0, garbage)
                remaining -= garbage.count
        if len(lists) > (MAX_LISTS if period == newest_period else 1):
            return tuple(lists)
    return ()


def fold_garbage(state: ManifestState, request: FoldGarbageRequest, now_ms: int) -> Answer:
    """Replace entries and lists by one list, from any session. The set of garbage keys stays the same.

    Raises:
        CommitConflict: entries or lists of the plan have changed: plan again.
        ProtocolViolation: the keys are not all keys of what is replaced.
    """
    plan = request.plan
    replaced = {garbage.sha256 for garbage in plan.lists}
    if request.list_sha256 in {garbage.sha256 for garbage in state.garbage_lists}:
        return AlreadyDone(Outcome.NOTHING_TO_FOLD, "it is folded")
    if not set(plan.garbage) <= set(state.garbage) or not set(plan.lists) <= set(state.garbage_lists):
        raise CommitConflict(
            f"job {state.job}: fold of garbage refused: its entries or lists have changed. Nothing was written."
        )
    folded = _new_list(state, request.keys, request.list_sha256, now_ms)
    most = len(plan.garbage) + sum(garbage.count for garbage in plan.lists)
    if not {entry.prefix for entry in plan.garbage} <= set(request.keys) or folded.count > most:
        raise ProtocolViolation(
            f"job {state.job}: fold of garbage refused: expected all that it replaces, at most {most} keys, got"
            f" {folded.count}. Nothing was written."
        )
    parts = [(part.since_version, part.since_ms) for part in plan.garbage]
    parts += [(part.since_version, part.since_ms) for part in plan.lists]
    folded = replace(folded, since_version=max(parts)[0], since_ms=max(since_ms for _, since_ms in parts))
    lists = (*(garbage for garbage in state.garbage_lists if garbage.sha256 not in replaced), folded)
    return advance(
        state,
        GarbageFolded(now_ms, len(plan.garbage), tuple(sorted(replaced)), folded, request.session_id),
        garbage=tuple(entry for entry in state.garbage if entry not in plan.garbage),
        garbage_lists=tuple(sorted(lists, key=lambda garbage: (garbage.since_version, garbage.sha256))),
    )


def forget_deleted(
    state: ManifestState,
    request: GarbageDeletedRequest | ForgetCollectedRequest,
    now_ms: int,
    due: Iterable[Garbage],
    due_lists: Collection[GarbageList],
    description: str,
) -> Answer:
    """Remove garbage from the state that was deleted from the store: single entries, and keys of lists.

    Args:
        due: entries that may be deleted. due_lists: likewise. description: of both, for people.
    Returns:
        A transition, or AlreadyDone: NOTHING_TO_FORGET.
    Raises:
        ProtocolViolation: something may not be deleted yet.
    """
    lists, failed = _apply_progress(state, due_lists, request.lists)
    listed = {entry.prefix for entry in state.garbage}
    deleted = tuple(sorted(listed.intersection(request.prefixes)))
    if not deleted and lists == state.garbage_lists:
        return AlreadyDone(Outcome.NOTHING_TO_FORGET, "none of these entries is still listed")
    early = set(deleted) - {entry.prefix for entry in due}
    if early:
        raise ProtocolViolation(
            f"job {state.job}: deletion of {sorted(early)} refused: expected garbage {description}, older than"
            f" {request.grace_ms} ms and below no pending checkpoint. Nothing was written."
        )
    progress = tuple((item.sha256, item.done) for item in request.lists)
    return advance(
        state,
        GarbageDeleted(now_ms, deleted, request.session_id, progress),
        garbage=(*(entry for entry in state.garbage if entry.prefix not in deleted), *failed),
        garbage_lists=lists,
    )


def _apply_progress(
    state: ManifestState, due: Collection[GarbageList], progress: Collection[ListProgress]
) -> tuple[tuple[GarbageList, ...], tuple[Garbage, ...]]:
    """Return the lists after some of their keys were dealt with, and entries for the keys that failed.

    A list that is no longer named, or has advanced further, stays as it is: its keys are deleted, or will be deleted
    once more, harmlessly.

    Raises:
        ProtocolViolation: a list may not be worked on yet, or has fewer keys.
    """
    by_digest = {garbage.sha256: garbage for garbage in state.garbage_lists}
    advanced = {
        item.sha256: item for item in progress if item.sha256 in by_digest and item.done > by_digest[item.sha256].done
    }
    early = advanced.keys() - {garbage.sha256 for garbage in due}
    too_long = [item for item in advanced.values() if item.done > by_digest[item.sha256].count]
    if early or too_long:
        raise ProtocolViolation(
            f"job {state.job}: deletion by lists {sorted(early)} refused: expected lists that are due, and no more than"
            f" they name; got more of {len(too_long)}. Nothing was written."
        )
    listed = {entry.prefix for entry in state.garbage}
    failed = tuple(
        Garbage(key, by_digest[item.sha256].since_version, by_digest[item.sha256].since_ms)
        for item in advanced.values()
        for key in item.failed
        if key not in listed
    )
    lists = [
        replace(garbage, done=advanced[garbage.sha256].done) if garbage.sha256 in advanced else garbage
        for garbage in state.garbage_lists
    ]
    return tuple(garbage for garbage in lists if garbage.done < garbage.count), failed
