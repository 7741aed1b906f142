"""The stored lists of garbage: written before they are named, read, folded, deleted once nothing names them (I8)."""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial

from milepost.errors import CheckpointError, CommitConflict, NotFound, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.log.garbage_lists import decode_list, encode_list
from milepost.protocol.manifest.transaction.requests import FoldGarbageRequest
from milepost.protocol.manifest.upkeep.garbage import MAX_STATE_ENTRIES, listable, plan_fold
from milepost.protocol.records.ids import SessionId
from milepost.protocol.records.layout import garbage_list_key
from milepost.protocol.records.manifest_state import GarbageList, ManifestState
from milepost.protocol.records.object_store import ObjectStore
from milepost.protocol.retention.reach import GarbageKeys
from milepost.storage.concurrency.parallel_map import parallel_map

_LOG = logging.getLogger(__name__)


def write_if_large(store: ObjectStore, state: ManifestState, garbage: Collection[str]) -> str | None:
    """Store a list of further garbage, lest the manifest value grow. Returns its digest; None: it is not so much."""
    keys = listable(garbage)
    return _write_list(store, state, keys) if len(keys) + len(state.garbage) > MAX_STATE_ENTRIES else None


def _write_list(store: ObjectStore, state: ManifestState, keys: Collection[str]) -> str:
    """Store a list that the next transition is to name. Returns its digest."""
    digest, body = encode_list(keys, state.version)
    store.put(garbage_list_key(digest), body)
    return digest


def read_list(store: ObjectStore, named: GarbageList) -> tuple[str, ...]:
    """Return the keys of a list; () for one that cannot be read: a collection finds again what it named."""
    try:
        return decode_list(store.get(garbage_list_key(named.sha256)), named)
    except (NotFound, StateCorrupt) as error:
        _LOG.warning("list of garbage %s: %s; gc finds again what it named", named.sha256, error.message)
        return ()


def listed_in(store: ObjectStore, state: ManifestState) -> GarbageKeys:
    """Return all that a manifest value lists as garbage."""
    keys = {entry.prefix for entry in state.garbage}
    for one in state.garbage_lists:
        keys.update(read_list(store, one)[one.done :])
    return GarbageKeys(frozenset(keys))


def fold(context: JobContext, session_id: SessionId, state: ManifestState, grace_ms: int) -> None:
    """Fold what a head lists as garbage when that is much: then its size is bounded at any pace of epochs.

    The head after it is read where lists went into the new one: their objects are deleted by that alone (I1).

    Args:
        state: of a head; when it has moved on and lists something else, nothing is folded.
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
    except CommitConflict as error:  # somebody else changed the lists: the next epoch folds
        _LOG.info("%s", error.message)
        return
    if plan.lists:
        forget_lists(context, state, begun.head())


def forget_lists(context: JobContext, before: ManifestState, after: ManifestState) -> None:
    """Delete the objects of lists that a newer head does not name any more. What fails is left to a collection."""
    gone = {one.sha256 for one in before.garbage_lists} - {one.sha256 for one in after.garbage_lists}
    try:
        context.store.delete([garbage_list_key(digest) for digest in sorted(gone)])
    except CheckpointError as error:
        _LOG.warning("%s lists of garbage stay until the next collection: %s", len(gone), error.message)
