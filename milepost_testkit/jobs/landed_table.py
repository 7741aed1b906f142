"""Land an open table without a job, by the lander: the rows and positions of each record."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.jobmaster.landing.lander import Lander, Landing
from milepost.protocol.landed import LogRecord, Position
from milepost.protocol.records import StoreConfig, landed_objects_prefix
from milepost.sources.contract import whole_object
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.landed import LandedSource, TableReading
from milepost.sources.parquet import LandedFileReader
from milepost.sources.planning import planned_objects, referenced_files
from milepost.storage import open_store, with_references
from milepost.storage.log import SourceLog
from milepost_testkit.stores.memory_store import MemoryStore

SOURCE = "orders"
WHOLE, BEFORE, AFTER = "whole", "killed before its record", "killed after its record"


class Killed(BaseException):
    """The process of a landing ended here."""


class KilledLog(SourceLog):
    """A log whose second append of a landing does not return."""

    fate = ""
    appends = 0

    def append(self, record: Any) -> Any:
        self.appends += 1
        if self.fate == BEFORE and self.appends == 2:
            raise Killed
        stored = super().append(record)
        if self.fate == AFTER and self.appends == 2:
            raise Killed
        return stored


class TableSource(LandedSource, Protocol):
    """A source that is an open table."""

    reading: TableReading


@dataclass
class TableLog:
    """The log of one source.

    Attributes:
        open: opens its table for a landing, with options of the source.
        config_at: how the root URL of files that records refer to is reached.
        by_reference: whether landings refer to the table's files.
    """

    by_reference: ClassVar[bool] = False

    open: Callable[..., TableSource]
    config_at: Callable[[str], StoreConfig] = StoreConfig
    log: SourceLog = field(default_factory=lambda: SourceLog(MemoryStore("memory://job"), SOURCE))
    newest: TableSource = field(init=False)

    def land(self, **options: Any) -> Landing:
        return Lander(self.log, self.opened(**options), "job").land()

    def opened(self, **options: Any) -> TableSource:
        """Open the table, to land by reference or by copy."""
        self.newest = self.open(**options)
        self.newest.reading = replace(self.newest.reading, by_reference=self.by_reference)
        return self.newest

    def rows(self, since: int = 1) -> list[dict[str, Any]]:
        """Return the rows of all records after one, in order."""
        return [row for record in self.records() if record.sequence > since for row in self._rows(record)]

    def records(self) -> list[LogRecord]:
        newest = self.log.newest()
        assert newest is not None
        return [self.log.record(number).record for number in range(1, newest.record.sequence + 1)]

    def column(self, name: str, since: int = 1) -> list[Any]:
        return [row[name] for row in self.rows(since)]

    @property
    def position(self) -> Position:
        return self.records()[-1].end

    def _rows(self, record: LogRecord) -> list[dict[str, Any]]:
        """Return the rows of its objects, or of the files that it refers to, as epochs read them."""
        if record.references:
            return self._referenced_rows(record)
        prefix = landed_objects_prefix(SOURCE)
        tables = [pq.read_table(io.BytesIO(self.log.store.get(prefix + item.key))) for item in record.objects]
        return [] if not tables else list(pa.concat_tables(tables).to_pylist())

    def _referenced_rows(self, record: LogRecord) -> list[dict[str, Any]]:
        stored = self.log.record(record.sequence)
        files = referenced_files([stored], self.config_at, "delta")
        store = with_references(self.log.store, {root: open_store(config) for root, config in files.stores.items()})
        types = self.newest.reading.types
        reader = LandedFileReader(DeclaredColumns(SOURCE, types, optional=[*types]), files.columns)
        parts = map(whole_object, planned_objects(stored))
        return [row for part in parts for batch in reader.read_part(store, part) for row in batch.to_pylist()]
