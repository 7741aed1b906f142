"""The newest of consecutive versions is found by name: of the manifest log, of a sink's heads.

An object store lists one key in one request, however many there are. A directory is read as a whole: after 35,000
versions that is 65 ms, and an epoch asks twenty times. So of a local store the version that was the newest is
remembered with the store, and what came after it is asked for by name; only the first question lists.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from milepost.protocol.records.errors import NotFound
from milepost.protocol.records.object_store import ObjectStat, ObjectStore

_MAX_STEPS = 100
"""Versions further on than that are found by listing."""

_known: WeakKeyDictionary[ObjectStore, dict[str, int]] = WeakKeyDictionary()
"""By store and prefix: a version that was the newest. Only where to look first: the store is asked again."""


def newest_object(
    store: ObjectStore, prefix: str, key_of: Callable[[int], str], version_of: Callable[[str], int]
) -> ObjectStat | None:
    """Return the newest version's object; None when there is none.

    Args:
        prefix: below which nothing but versions lies; the newest has the smallest key.
        key_of: a version's key. version_of: a key's version; raises for a foreign one.
    """
    if not store.config.is_local:
        return next(iter(store.list(prefix, limit=1)), None)
    known = _known.setdefault(store, {})
    newest = _after(store, key_of, known.get(prefix))
    if newest is None:
        newest = next(iter(store.list(prefix, limit=1)), None)
    if newest is not None:
        known[prefix] = version_of(newest.key)
    return newest


def _after(store: ObjectStore, key_of: Callable[[int], str], version: int | None) -> ObjectStat | None:
    """Return the newest version from this one on, by name; None: it is gone, or too many came after it."""
    if version is None:
        return None
    try:
        newest = store.stat(key_of(version))
    except NotFound:
        return None
    for following in range(version + 1, version + 1 + _MAX_STEPS):
        try:
            newest = store.stat(key_of(following))
        except NotFound:
            return newest
    return None
