"""Managed Parquet tables: a commit creates a head object, and the mark's contents list the live files.

Head n, from 1, is `_milepost/heads/<20 digits of 10^19 - n>.json`, created only if absent. The number is inverted, so
that one LIST with limit 1 returns the newest head:

    n = 1   _milepost/heads/09999999999999999999.json
    n = 2   _milepost/heads/09999999999999999998.json       listed first

No head is ever deleted: a freed key would let the put of a paused writer succeed (I6). Only `milepost read` can read
the table; a reader that lists its files would see every version of a row.

A cached head is used without reading it again while the LIST shows, by its etag, that it is still the newest.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakKeyDictionary

import pyarrow as pa

from milepost.codec import decode, encode
from milepost.errors import StateCorrupt
from milepost.protocol.records import ObjectStore
from milepost.sinks.records.committables import StagedFile
from milepost.sinks.records.reservation import TableOwner, read_reservation
from milepost.sinks.records.table_keys import OWN
from milepost.sinks.table_format import ForeignCommit, TableMove
from milepost.storage import latest_version

HEADS = f"{OWN}heads/"

_TOP = 10**19
_HEAD_KEY = re.compile(rf"{HEADS}(\d{{20}})\.json")
_RECENT_S = 5.0


@dataclass(frozen=True, slots=True)
class TableHead:
    """One commit.

    Attributes:
        version: n, from 1, without gaps. table_id: of the reservation.
        number, write_id: of the mark, whose record is in the owner's storage.
        owner: of the table from this commit on.
    """

    stored_format: ClassVar[str] = "milepost.table-head/3"

    version: int
    table_id: str
    number: int
    write_id: str
    owner: TableOwner

    def check(self) -> str | None:
        """Return what is wrong with values that fit one by one; None when they belong together."""
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


class ParquetFormat:
    """One managed Parquet table; see `table_format.TableFormat`."""

    keeps_statistics = False
    is_database = False
    caches_reads = True
    log_prefix = HEADS
    stores_owner = False

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def check_columns(self, schema: pa.Schema) -> None:
        """Nothing: it holds whatever Parquet does."""

    def open(self) -> OpenParquetTable | None:
        read_s = time.monotonic()
        newest = latest_version(self._store, HEADS, head_key, head_version)
        if newest is None:
            reserved = read_reservation(self._store)
            return None if reserved is None else OpenParquetTable(self._store, reserved.table_id, reserved.owner, None)
        version, cached = head_version(newest.key), _cache.get(self._store)
        if cached is not None and (cached.head.version, cached.etag) == (version, newest.etag):
            head = cached.head
        else:
            head = decode(TableHead, self._store.get(newest.key), newest.key, key=newest.key)
        if head.version != version:
            raise StateCorrupt(f"{newest.key}: says version {head.version}, its name {version}", key=newest.key)
        _cache[self._store] = _CachedHead(head, newest.etag, read_s)
        return OpenParquetTable(self._store, head.table_id, head.owner, head)

    def recent(self) -> OpenParquetTable | None:
        cached = _cache.get(self._store)
        if cached is None or time.monotonic() - cached.read_s > _RECENT_S:
            return None
        return OpenParquetTable(self._store, cached.head.table_id, cached.head.owner, cached.head)

    def create(self, owner: TableOwner, schema: pa.Schema) -> None:
        """Do nothing: the reservation creates the table."""

    def check_rows(self, rows: pa.Table) -> None:
        """Accept all rows: if the format can store the columns, it can store every value."""

    def probe(self) -> str:
        """Return no findings: opening the table tests everything."""
        return ""

    def maintain(self, retention_ms: int) -> None:
        """Do nothing: heads are small, and never deleted."""


class OpenParquetTable:
    """A table at its newest head."""

    def __init__(self, store: ObjectStore, table_id: str, owner: TableOwner, head: TableHead | None) -> None:
        self._store = store
        self.version = 0 if head is None else head.version
        self.readers_version: str | None = None
        self.table_id = table_id
        self.number = 0 if head is None else head.number
        self.write_id = None if head is None else head.write_id
        self.owner: TableOwner | None = owner
        self._owner = owner
        self.schema: pa.Schema | None = None

    def check(self, schema: pa.Schema | None) -> None:
        """Nothing: it holds whatever Parquet does."""

    def missing_properties(self, owner: TableOwner) -> Mapping[str, str]:
        return {}

    def claim(self, owner: TableOwner, properties: Mapping[str, str], mark: tuple[int, str] | None) -> None:
        if mark is not None:
            self._put_head(owner, *mark)

    def check_keys(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> None:
        """Accept all keys: no other writer adds rows."""

    def rows_fault(self, files: Sequence[StagedFile]) -> str | None:
        """Return None: the table's rows are those of its files."""
        return None

    def live_files(self) -> Mapping[str, int] | None:
        return None

    def foreign_commits(self) -> tuple[ForeignCommit, ...]:
        return ()

    def history(self) -> tuple[ForeignCommit, ...]:
        return ()

    def widen(self, schema: pa.Schema) -> None:
        """Do nothing: the contents record the columns."""

    def commit(self, move: TableMove) -> None:
        self._put_head(self._owner, move.number, move.write_id)

    def _put_head(self, owner: TableOwner, number: int, write_id: str) -> None:
        head, read_s = TableHead(self.version + 1, self.table_id, number, write_id, owner), time.monotonic()
        _cache.pop(self._store, None)
        etag = self._store.create(head_key(head.version), encode(head)).etag
        _cache[self._store] = _CachedHead(head, etag, read_s)
