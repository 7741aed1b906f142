"""Managed Parquet tables: a commit creates a head object, and the mark's contents list the live files.

Only `milepost read` can read the table; a reader that lists its files would see every version of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from milepost.protocol.records import ObjectStore
from milepost.sinks.table_format import ForeignCommit, TableMove
from milepost.tables.records import (
    HEADS,
    StagedFile,
    TableHead,
    TableOwner,
    create_head,
    newest_head,
    read_reservation,
    recent_head,
)


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
        head = newest_head(self._store)
        if head is not None:
            return OpenParquetTable(self._store, head.table_id, head.owner, head)
        reserved = read_reservation(self._store)
        return None if reserved is None else OpenParquetTable(self._store, reserved.table_id, reserved.owner, None)

    def recent(self) -> OpenParquetTable | None:
        head = recent_head(self._store)
        return None if head is None else OpenParquetTable(self._store, head.table_id, head.owner, head)

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
        create_head(self._store, TableHead(self.version + 1, self.table_id, number, write_id, owner))
