"""The columns a source declares: those of its files, then those taken from object keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

import pyarrow as pa

from milepost.jobspec.job import EventTimeSpec
from milepost.language import ColumnType, arrow_schema
from milepost.sources.contract import MAX_VALUE_CHARS, BadObject
from milepost.sources.kernel.time_column import TimeColumn
from milepost.sources.path_columns import PathColumns


class DeclaredColumns:
    """The declared columns of one source; picklable.

    Attributes:
        source: name of the source, for messages.
        types: types of the file columns, in order. Other columns of a file are ignored.
        file_schema: schema of the file columns.
        required: file columns that every object must have. Any other one reads as null where it is missing.
        path_columns: columns taken from the key.
        schema: schema of a row: file columns, with the event time as a timestamp, then path columns.
        time: event-time column, or None.
        event_time: its name, or None.
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
        """Derive the schemas from the spec.

        Args:
            event_time: spec of the event time, which is a file column.
            optional: file columns that an object may lack.
            partitions: columns taken from the key.
        """
        self.source, self.types = source, dict(columns)
        self.file_schema = arrow_schema(columns)
        self.required = [name for name in columns if name not in optional]
        self.path_columns = PathColumns(partitions or {})
        self.time = None if event_time is None else TimeColumn(event_time, self.types[event_time.column])
        self.event_time = None if event_time is None else event_time.column
        self.schema = pa.schema([*self.timed_schema(self.file_schema), *self.path_columns.fields])

    def timed_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of rows that `timed` returns."""
        at = -1 if self.time is None else schema.get_field_index(self.time.field.name)
        return schema if self.time is None or at < 0 else schema.set(at, self.time.field)

    def timed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert the event-time column, if the batch has it, to a timestamp.

        Raises:
            ArrowInvalid: a value is null or not a time. `fault` returns the reason.
        """
        if self.time is None or self.time.field.name not in batch.schema.names:
            return batch
        at = batch.schema.get_field_index(self.time.field.name)
        times = self.time.times(batch.column(at))
        if times.null_count:
            raise pa.ArrowInvalid("an event time is null, or no time")
        return batch.set_column(at, self.time.field, times)

    def fault(self, value: pa.Scalar) -> str:
        """Return as one clause why a value is not an event time."""
        assert self.time is not None
        return self.time.fault(value)

    def missing_column_error(
        self,
        key: str,
        column: str,
        problem: str,
        names: Collection[str],
        *,
        content: str,
        hint: str = "",
        line: int | None = None,
        raw: bytes | None = None,
    ) -> BadObject:
        """Return the error for an object that lacks a required column.

        Args:
            names: the columns that the object has.
            content: what the object has instead, as text. It becomes the engine message, not part of the clause.
            hint: another likely cause, appended to the clause.
        """
        advice = "; add it to `optional_columns` if objects may lack it"
        if not any(name in self.types for name in names):
            advice = ", nor is any other column of `schema`"
        elif column == self.event_time:
            advice = ""
        engine_message = content if len(content) <= MAX_VALUE_CHARS else content[: MAX_VALUE_CHARS - 1] + "…"
        return BadObject(key, line, column, None, problem + advice + hint, engine_message=engine_message, raw=raw)

    def type_mismatch(self, column: str, value: object) -> str:
        """Return a clause to append when a timestamp is refused only because of its UTC offset, or an empty text."""
        type_ = self.types[column]
        if type_.kind != "timestamp" or not isinstance(value, str):
            return ""
        try:
            has_offset = datetime.fromisoformat(value).tzinfo is not None
        except ValueError:
            return ""
        if has_offset is type_.utc:
            return ""
        other, article = (f"timestamp[{type_.unit}]", "no") if type_.utc else (f"timestamp[{type_.unit}, UTC]", "a")
        return f": it has {article} UTC offset, as in a {other}"
