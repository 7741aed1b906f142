"""Write, read, fold and delete the stored lists of garbage (I8).

A list is an object that the manifest names by digest, so that the manifest value stays small. It is written before a
transition names it, and deleted after a transition no longer does.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial

from milepost.errors import CheckpointError, CommitConflict, NotFound, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.log import decode_list, encode_list
from milepost.protocol.manifest.transaction import FoldGarbageRequest
from milepost.protocol.manifest.upkeep import MAX_STATE_ENTRIES, listable, plan_fold
from milepost.protocol.records import GarbageList, ManifestState, ObjectStore, SessionId, garbage_list_key
from milepost.protocol.retention import GarbageKeys
from milepost.storage.concurrency import parallel_map

_LOG = logging.getLogger(__name__)


def write_if_large(store: ObjectStore, state: ManifestState, garbage: Collection[str]) -> str | None:
    """Store a list if the manifest would hold too many entries. Returns its digest; None if it was not necessary."""
    keys = listable(garbage)
    is_large = len(keys) + len(state.garbage) > MAX_STATE_ENTRIES
    return _write_list(store, state, keys) if keys and is_large else None


def _write_list(store: ObjectStore, state: ManifestState, keys: Collection[str]) -> str:
    """Store a list that the next transition will name. Returns its digest."""
    digest, body = encode_list(keys, state.version)
    store.put(garbage_list_key(digest), body)
    return digest


def read_list(store: ObjectStore, named: GarbageList) -> tuple[str, ...]:
    """Return the keys of a list; () if it cannot be read, since a collection finds the same garbage again."""
    try:
        return decode_list(store.get(garbage_list_key(named.sha256)), named)
    except (NotFound, StateCorrupt) as error:
        _LOG.warning("list of garbage %s: %s; gc will find the same objects again", named.sha256, error.message)
        return ()


def listed_garbage(store: ObjectStore, state: ManifestState) -> GarbageKeys:
    """Return everything that a manifest value lists as garbage: its entries, and the rest of each stored list."""
    keys = {entry.prefix for entry in state.garbage}
    for named in state.garbage_lists:
        keys.update(read_list(store, named)[named.done :])
    return GarbageKeys(frozenset(keys))


def fold_garbage(context: JobContext, session_id: SessionId, state: ManifestState, grace_ms: int) -> None:
    """Merge the head's garbage entries and lists into one list if they are many. This bounds the manifest value.

    If older lists were merged, the head after the transition is read, since only that allows deleting their objects
    (I1).

    Args:
        state: of a head. If its garbage has changed since, nothing is folded.
    """
    plan = plan_fold(state, grace_ms)
    if plan is None:
        return
    keys = {entry.prefix for entry in plan.garbage}
    keys.update(*parallel_map(context.store, partial(read_list, context.store), plan.lists))
    if not keys:
        return
    ordered = tuple(sorted(keys))
    request = FoldGarbageRequest(session_id, plan, ordered, _write_list(context.store, state, ordered))
    try:
        begun = context.begin(request)
    except CommitConflict as error:  # another session changed the lists: the next epoch folds
        _LOG.info("%s", error.message)
        return
    if plan.lists:
        delete_unnamed_lists(context, state, begun.head())


def delete_unnamed_lists(context: JobContext, before: ManifestState, after: ManifestState) -> None:
    """Delete the objects of lists that a newer head no longer names. A failure is left to the next collection."""
    unnamed = {named.sha256 for named in before.garbage_lists} - {named.sha256 for named in after.garbage_lists}
    try:
        context.store.delete([garbage_list_key(digest) for digest in sorted(unnamed)])
    except CheckpointError as error:
        _LOG.warning("%s lists of garbage stay until the next collection: %s", len(unnamed), error.message)
