"""Heads of managed Parquet tables: a commit creates one, and the newest one says what the table shows.

Head n, from 1, is `_milepost/heads/<20 digits of 10^19 - n>.json`, created only if absent. The number is inverted, so
that one LIST with limit 1 returns the newest head:

    n = 1   _milepost/heads/09999999999999999999.json
    n = 2   _milepost/heads/09999999999999999998.json       listed first

No head is ever deleted: a freed key would let the put of a paused writer succeed (I6).

A cached head is used without reading it again while the LIST shows, by its etag, that it is still the newest.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakKeyDictionary

from milepost.codec import decode, encode
from milepost.errors import StateCorrupt
from milepost.protocol.records import ObjectStore
from milepost.storage import latest_version
from milepost.tables.records.reservation import TableOwner
from milepost.tables.records.table_keys import OWN

HEADS = f"{OWN}heads/"

_TOP = 10**19
_HEAD_KEY = re.compile(rf"{HEADS}(\d{{20}})\.json")
_RECENT_S = 5.0


@dataclass(frozen=True, slots=True)
class TableHead:
    """One commit.

    Attributes:
        version: n, from 1, without gaps. table_id: of the reservation.
        number, write_id: of the mark, which has its record in the owner's storage.
        owner: of the table from this commit on.
    """

    stored_format: ClassVar[str] = "milepost.table-head/3"

    version: int
    table_id: str
    number: int
    write_id: str
    owner: TableOwner

    def check(self) -> str | None:
        """Return the fault of values that fit one by one; None when they belong together."""
        return None if min(self.version, self.number) > 0 else f"head {self.version} carries mark {self.number}"


@dataclass(frozen=True, slots=True)
class _CachedHead:
    """The newest head as of a read, with its etag and the monotonic time of the read in seconds."""

    head: TableHead
    etag: str
    read_s: float


_cache: WeakKeyDictionary[ObjectStore, _CachedHead] = WeakKeyDictionary()
"""The newest head read or written, by the table's store."""


def head_key(version: int) -> str:
    """Return the key of head `version`; newer heads sort first."""
    return f"{HEADS}{_TOP - version:020d}.json"


def head_version(key: str) -> int:
    """Inverse of `head_key`. Raises StateCorrupt."""
    match = _HEAD_KEY.fullmatch(key)
    if match is None or int(match[1]) >= _TOP:
        raise StateCorrupt(f"{key} is not the name of a table's head", key=key)
    return _TOP - int(match[1])


def newest_head(store: ObjectStore) -> TableHead | None:
    """Return the newest head at the store's root; None: nothing was committed. Raises StateCorrupt."""
    read_s = time.monotonic()
    newest = latest_version(store, HEADS, head_key, head_version)
    if newest is None:
        return None
    version, cached = head_version(newest.key), _cache.get(store)
    if cached is not None and (cached.head.version, cached.etag) == (version, newest.etag):
        head = cached.head
    else:
        head = decode(TableHead, store.get(newest.key), newest.key, key=newest.key)
    if head.version != version:
        raise StateCorrupt(f"{newest.key}: says version {head.version}, its name {version}", key=newest.key)
    _cache[store] = _CachedHead(head, newest.etag, read_s)
    return head


def recent_head(store: ObjectStore) -> TableHead | None:
    """Return the newest head as this process read or wrote it less than 5 s ago; None: it did not."""
    cached = _cache.get(store)
    return None if cached is None or time.monotonic() - cached.read_s > _RECENT_S else cached.head


def create_head(store: ObjectStore, head: TableHead) -> None:
    """Commit. Raises: CommitConflict: another writer has committed this version. CommitOutcomeUnknown."""
    read_s = time.monotonic()
    _cache.pop(store, None)
    etag = store.create(head_key(head.version), encode(head)).etag
    _cache[store] = _CachedHead(head, etag, read_s)
