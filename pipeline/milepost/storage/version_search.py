"""Find the latest of consecutively numbered objects: manifest entries, heads of a sink.

An object store lists one key in one request, however many there are. A local listing reads the whole directory: 65 ms
after 35,000 versions, and an epoch asks twenty times. So for a local store the last known version is remembered, and
the search continues from it by name. Only the first call lists.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from milepost.errors import NotFound
from milepost.protocol.records import ObjectStat, ObjectStore

_MAX_STEPS = 100
"""A version further than this from the remembered one is found by listing."""

_last_known: WeakKeyDictionary[ObjectStore, dict[str, int]] = WeakKeyDictionary()
"""By store and prefix: a version that was the latest. It is only where the search starts, never an answer."""


def latest_version(
    store: ObjectStore, prefix: str, key_of: Callable[[int], str], version_of: Callable[[str], int]
) -> ObjectStat | None:
    """Return the object of the latest version, or None when there is none.

    Example: version 59 is remembered, and 62 is the latest. `stat` finds 59, 60, 61 and 62, but not 63: five requests.

    Args:
        prefix: holds nothing but versions, of which the latest has the smallest key.
        key_of: returns a version's key.
        version_of: returns a key's version, or raises for a foreign key.
    """
    if not store.config.is_local:
        return next(iter(store.list(prefix, limit=1)), None)
    last_known = _last_known.setdefault(store, {})
    latest = _latest_from(store, key_of, last_known.get(prefix))
    if latest is None:
        latest = next(iter(store.list(prefix, limit=1)), None)
    if latest is not None:
        last_known[prefix] = version_of(latest.key)
    return latest


def _latest_from(store: ObjectStore, key_of: Callable[[int], str], version: int | None) -> ObjectStat | None:
    """Return the latest version from this one on, or None if this one is deleted or too far behind."""
    if version is None:
        return None
    try:
        latest = store.stat(key_of(version))
    except NotFound:
        return None
    for following in range(version + 1, version + 1 + _MAX_STEPS):
        try:
            latest = store.stat(key_of(following))
        except NotFound:
            return latest
    return None
