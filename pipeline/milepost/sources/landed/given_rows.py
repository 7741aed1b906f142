"""Rows from the caller in place of an external system, for the cases of `milepost test`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from milepost.jobspec.job import EventTimeSpec
from milepost.language import ColumnType
from milepost.protocol.landed import Identity, Position
from milepost.sources.landed.contract import Pull, Reached
from milepost.sources.landed.row_batches import record_batches


class GivenRows:
    """A `LandedSource` with given rows as one record. Its position is the number of such records.

    Args:
        source: for messages. rows: with the declared columns. types, event_time: of the source.
    """

    def __init__(
        self, source: str, rows: pa.Table, types: Mapping[str, ColumnType], event_time: EventTimeSpec | None
    ) -> None:
        self._source, self._rows, self._types, self._event_time = source, rows, types, event_time
        self._is_read = False

    def identity(self) -> Identity:
        return {"format": "given rows"}

    def initial_position(self) -> Position:
        return {"records": 0}

    def next_pull(self, position: Position) -> Pull | None:
        if self._is_read or not self._rows.num_rows:
            return None
        return Pull([self._rows], {"records": position["records"] + 1})

    def read(self, split: Any) -> Iterator[pa.RecordBatch | Reached]:
        self._is_read = True
        yield from record_batches(self._source, iter(split.to_batches()), self._types, self._event_time)

    def commit(self, end: Position) -> None:
        """Nothing waits for an acknowledgement."""
