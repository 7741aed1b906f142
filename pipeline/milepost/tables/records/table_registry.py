"""The registry of a sink's tables, including those of migrations.

A migration writes one record per table to the job's storage, `sinks/<sink>/tables/<location>.json`, before anything is
staged at the new location. A sink that was never migrated has none. The checkpoints name the current table; the
registry names every other location that may have files of the job. Such a table is deleted once no retained checkpoint
needs it, and its record with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from milepost.codec import decode, encode
from milepost.errors import CommitConflict
from milepost.protocol.records import ObjectStore, registered_table_key, registered_tables_prefix
from milepost.tables.records.table_address import TableAddress


@dataclass(frozen=True, slots=True)
class RegisteredTable:
    """One table; both as in `TableContents`."""

    stored_format: ClassVar[str] = "milepost.registered-table/1"

    address: TableAddress
    location: str


class TableRegistry:
    """The tables of one sink that are or were in force, or are being written for it.

    Args:
        store: of the job.
    """

    def __init__(self, store: ObjectStore, sink: str) -> None:
        self._store, self._sink = store, sink

    def add(self, table: RegisteredTable) -> None:
        """Record a table, unless it is recorded. Raises CommitOutcomeUnknown, StoreUnavailable: call again."""
        try:
            self._store.create(registered_table_key(self._sink, table.location), encode(table))
        except CommitConflict:
            return

    def tables(self) -> tuple[RegisteredTable, ...]:
        """Return the known tables, by location. Raises StateCorrupt."""
        keys = [stat.key for stat in self._store.list(registered_tables_prefix(self._sink))]
        return tuple(decode(RegisteredTable, self._store.get(key), key, key=key) for key in sorted(keys))

    def forget(self, table: RegisteredTable) -> None:
        """Delete the record of a table of which nothing is left."""
        self._store.delete([registered_table_key(self._sink, table.location)])
