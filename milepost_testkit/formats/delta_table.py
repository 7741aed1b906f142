"""A Delta table under test: files staged as the product stages them, moves of a sink, and what others do to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from milepost.errors import CommitConflict
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.sinks.formats.delta.delta_format import DeltaFormat
from milepost.sinks.formats.delta.delta_types import delta_schema
from milepost.sinks.formats.delta.locations import delta_location
from milepost.sinks.formats.delta.open_delta_table import OpenDeltaTable
from milepost.sinks.parquet_files.file_statistics import statistics_of
from milepost.sinks.parquet_files.table_files import TableFiles
from milepost.sinks.table_format import TableMove
from milepost.storage.open import open_store
from milepost.tables.records.committables import StagedFile, StagingContext
from milepost.tables.records.reservation import TableOwner

OWNER = TableOwner("orders", "a1b2c3", "totals")
SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string())])
DAY_MS = 86_400_000


def rows(*keys: int, schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return rows with these keys; further columns are text of them, or null."""
    columns = {
        one.name: [f"n{key}" for key in keys] if pa.types.is_string(one.type) else [None] * len(keys) for one in schema
    }
    return pa.table(columns | {"k": list(keys)}, schema=schema)


def write_id(number: int) -> str:
    """Return the write id of a move under test: 32 hexadecimal digits, both halves with a sign."""
    return f"{2**127 + 2**63 + number:032x}"


def foreign_delta_table(
    store: ObjectStore,
    schema: pa.Schema,
    protocol: Mapping[str, Any],
    properties: Mapping[str, str] | None = None,
    metadata: Sequence[Mapping[str, object]] = (),
) -> None:
    """Write the first version of a table as another engine could.

    Args:
        metadata: of its first columns.
    """
    columns = json.loads(delta_schema(schema))
    for column, said in zip(columns["fields"], metadata, strict=False):
        column["metadata"] = dict(said)
    table = {
        "id": "theirs",
        "name": "sales",
        "description": "made by another engine",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(columns),
        "partitionColumns": [],
        "configuration": dict(properties or {}),
        "createdTime": 1_700_000_000_000,
    }
    actions = [{"protocol": dict(protocol)}, {"metaData": table}]
    store.put("_delta_log/00000000000000000000.json", "\n".join(map(json.dumps, actions)).encode())


@dataclass
class DeltaTableUnderTest:
    """The table at a store's root, and its format.

    Attributes:
        held_bytes: rows that are more than so many bytes become several row groups.
    """

    store: ObjectStore
    retention_ms: int = 7 * DAY_MS
    held_bytes: int = 1 << 20
    _labels: Iterator[int] = field(default_factory=count)

    @classmethod
    def in_folder(cls, folder: Path, retention_ms: int = 7 * DAY_MS) -> DeltaTableUnderTest:
        return cls(open_store(StoreConfig(file_url(folder))), retention_ms)

    @property
    def format(self) -> DeltaFormat:
        return DeltaFormat("totals", self.store, self.retention_ms)

    def create(self, schema: pa.Schema = SCHEMA, owner: TableOwner = OWNER) -> OpenDeltaTable:
        """Make the table; return it as it is then."""
        self.format.create(owner, schema)
        return self.open()

    def open(self) -> OpenDeltaTable:
        table = self.format.open()
        assert table is not None
        return table

    def stage(self, *tables: pa.Table) -> StagedFile:
        """Write the rows as one file below the table; nothing names it yet."""
        label = str(next(self._labels))
        file = TableFiles("totals", self.store).stage(iter(tables), StagingContext(1, 1, 0, self.held_bytes), label)
        assert file is not None
        return replace(file, statistics=statistics_of(pq.read_metadata(pa.BufferReader(self.store.get(file.key)))))

    def move(
        self,
        number: int,
        added: Iterable[StagedFile] = (),
        removed: Iterable[StagedFile] = (),
        *,
        table: OpenDeltaTable | None = None,
    ) -> None:
        """Commit a move, on the table as it is now or as a handle shows it; its write id is of the number."""
        table = table if table is not None else self.open()
        schema = table.schema if table.schema is not None else SCHEMA
        table.commit(TableMove(number, write_id(number), tuple(added), tuple(removed), schema))

    def race(self, racers: int) -> list[bool]:
        """Commit concurrently this many times to the table as it is now, each a file with its number as key.

        Returns: of each whether it was the one, whose move has the number that follows its own.
        """
        files = [self.stage(rows(key)) for key in range(racers)]
        handles, start = [self.open() for _ in files], threading.Barrier(racers)

        def wins(racer: int) -> bool:
            start.wait()
            try:
                self.move(racer + 1, [files[racer]], table=handles[racer])
            except CommitConflict:
                return False
            return True

        with ThreadPoolExecutor(racers) as pool:
            return list(pool.map(wins, range(racers)))

    # -- what others do -------------------------------------------------------------------------------------------

    @property
    def others(self) -> DeltaTable:
        """The table as another writer opens it."""
        location = delta_location("others", self.store.config)
        return DeltaTable(location.uri, storage_options=location.options)

    def append_by_others(self, *keys: int) -> None:
        location = delta_location("others", self.store.config)
        write_deltalake(location.uri, rows(*keys), mode="append", storage_options=location.options)

    def keys(self) -> list[int]:
        """Return the keys of all rows, as the library reads them."""
        return sorted(pa.table(self.others.to_pyarrow_table()).column("k").to_pylist())
