"""Columns that are taken from a message itself: its key, topic, offset, time, or its value as it is."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from milepost.jobspec.job import CarriedColumn, EventTimeSpec
from milepost.sources.contract import BadRecord
from milepost.sources.kernel.arrow_errors import DATA_ERRORS
from milepost.sources.kernel.declared_columns import DeclaredColumns


class CarriedColumns:
    """Copies columns of landed messages; picklable.

    Attributes:
        schema: of the rows.
    """

    def __init__(self, source: str, columns: Mapping[str, CarriedColumn], event_time: EventTimeSpec | None) -> None:
        types = {name: column.type for name, column in columns.items()}
        of_these = event_time is not None and event_time.column in columns
        self._declared = DeclaredColumns(source, types, event_time=event_time if of_these else None)
        self._fields = {name: column.field for name, column in columns.items()}
        self.schema = self._declared.schema

    def arrays(self, messages: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns. Raises ArrowInvalid: a text is not UTF-8, or an event time is null or no time."""
        return [self._array(messages, column) for column in self._declared.file_schema]

    def errors(self, key: str, messages: pa.RecordBatch) -> dict[int, BadRecord]:
        """Return the error of each message with a column that cannot be taken, by its index."""
        found: dict[int, BadRecord] = {}
        for column in self._declared.file_schema:
            pending = [range(messages.num_rows)]
            while pending:
                rows = pending.pop()
                # Taken, not sliced: the cast of a slice also covers values outside the slice.
                part = messages.take(pa.array(rows, pa.int64()))
                try:
                    self._array(part, column)
                except DATA_ERRORS:
                    half = len(rows) // 2
                    if half:
                        pending += [rows[half:], rows[:half]]
                    else:
                        found.setdefault(rows.start, self._explain(key, part[self._fields[column.name]], column))
        return found

    def _array(self, messages: pa.RecordBatch, column: pa.Field) -> pa.Array:
        array = messages[self._fields[column.name]].cast(column.type)
        return self._declared.timed(pa.RecordBatch.from_arrays([array], schema=pa.schema([column])))[0]

    def _explain(self, key: str, values: pa.Array, column: pa.Field) -> BadRecord:
        value = values[0].as_py()
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else None if value is None else str(value)
        try:
            reason = self._declared.fault(values.cast(column.type)[0])
        except DATA_ERRORS:
            reason = "is not valid UTF-8"
        return BadRecord(key, None, column.name, text, reason)
