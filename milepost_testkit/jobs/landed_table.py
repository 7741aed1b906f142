"""Land an open table without a job, by the lander: the rows and positions of each record."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.jobmaster.landing.lander import Lander, Landing
from milepost.protocol.landed import LogRecord, Position
from milepost.protocol.records import landed_objects_prefix
from milepost.sources.landed import LandedSource
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


@dataclass
class TableLog:
    """The log of one source. `open` opens its table for a landing, with options of the source."""

    open: Callable[..., LandedSource]
    log: SourceLog = field(default_factory=lambda: SourceLog(MemoryStore("memory://job"), SOURCE))

    def land(self, **options: Any) -> Landing:
        return Lander(self.log, self.open(**options), "job").land()

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
        prefix = landed_objects_prefix(SOURCE)
        tables = [pq.read_table(io.BytesIO(self.log.store.get(prefix + item.key))) for item in record.objects]
        return [] if not tables else list(pa.concat_tables(tables).to_pylist())
