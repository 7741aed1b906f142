"""Declared columns of a source: those of its files, then those that it takes from an object's key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

import pyarrow as pa

from milepost.jobspec.job.event_time_spec import EventTimeSpec
from milepost.jobspec.values.types import ColumnType, to_arrow
from milepost.sources.contract import MAX_VALUE_CHARS, BadObject, printable
from milepost.sources.path_columns import PathColumns
from milepost.sources.readers.time_column import TimeColumn


class DeclaredColumns:
    """What a source declares of its rows; picklable.

    Attributes:
        source: name, for messages.
        types: of the columns of a file, in order; others that a file has are ignored.
        in_file: their schema. required: those of them that each object has; one that lacks another reads as null.
        in_path: the columns of the key. schema: of a row, both, with the event time as a timestamp.
        time: the event-time column; None: it has none. event_time: its name.
    """

    def __init__(
        self,
        source: str,
        columns: Mapping[str, ColumnType],
        *,
        event_time: EventTimeSpec | None = None,
        optional: Collection[str] = (),
        partitions: Mapping[str, ColumnType] | None = None,
    ) -> None:
        """Take what the spec says.

        Args:
            event_time: of a column of a file. optional: columns that an object may lack.
            partitions: columns taken from the key.
        """
        self.source, self.types = source, dict(columns)
        self.file_schema = pa.schema([(name, to_arrow(type_)) for name, type_ in columns.items()])
        self.required = [name for name in columns if name not in optional]
        self.path_columns = PathColumns(partitions or {})
        self.time = None if event_time is None else TimeColumn(event_time, self.types[event_time.column])
        self.event_time = None if event_time is None else event_time.column
        self.schema = pa.schema([*self.timed_schema(self.file_schema), *self.path_columns.fields])

    def timed_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of `timed` rows."""
        at = -1 if self.time is None else schema.get_field_index(self.time.field.name)
        return schema if self.time is None or at < 0 else schema.set(at, self.time.field)

    def timed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return columns of a file with the event time, where it is among them, as a timestamp.

        Raises:
            ArrowInvalid: a value is null or no time; `fault` says why.
        """
        if self.time is None or self.time.field.name not in batch.schema.names:
            return batch
        at = batch.schema.get_field_index(self.time.field.name)
        times = self.time.times(batch.column(at))
        if times.null_count:
            raise pa.ArrowInvalid("an event time is null, or no time")
        return batch.set_column(at, self.time.field, times)

    def fault(self, value: pa.Scalar) -> str:
        """Return why an event time is none, one clause."""
        assert self.time is not None
        return self.time.fault(value)

    def lacking(
        self,
        key: str,
        column: str,
        problem: str,
        found: Collection[str],
        *,
        there: str,
        hint: str = "",
        line: int | None = None,
        raw: bytes | None = None,
    ) -> BadObject:
        """Return the refusal of an object that lacks a column.

        Args:
            found: names of the columns that it has. there: they in words: said, and not part of the clause.
            hint: another likely cause; ends the clause.
        """
        advice = "; name it in `optional_columns` where an object may lack it"
        if not any(name in self.types for name in found):
            advice = ", nor any other of `schema`"
        elif column == self.event_time:
            advice = ""
        engine_message = printable(there if len(there) <= MAX_VALUE_CHARS else there[: MAX_VALUE_CHARS - 1] + "…")
        return BadObject(key, line, column, None, problem + advice + hint, engine_message=engine_message, raw=raw)

    def type_mismatch(self, column: str, value: object) -> str:
        """Return why a value is not of a column's type where that is easily missed: a clause behind it, or nothing."""
        type_ = self.types[column]
        if type_.kind != "timestamp" or not isinstance(value, str):
            return ""
        try:
            has_offset = datetime.fromisoformat(value).tzinfo is not None
        except ValueError:
            return ""
        if has_offset is type_.utc:
            return ""
        other, what = (f"timestamp[{type_.unit}]", "no") if type_.utc else (f"timestamp[{type_.unit}, UTC]", "an")
        return f": it has {what} offset from UTC, like a {other}"
