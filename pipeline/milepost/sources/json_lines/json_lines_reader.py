"""Read JSON lines as record batches with pyarrow's streaming reader.

A line that is neither blank nor one JSON object is a bad record. A field missing from a line is null. A required column
missing from every line makes the object bad. Times are written as in CSV: with an offset or `Z` for UTC columns,
without one for the others.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pyarrow.json as pajson

from milepost.protocol.records import ObjectStore
from milepost.sources.contract import BadObject, BadRecord, ObjectPart
from milepost.sources.json_lines.expected_values import ExpectedValues
from milepost.sources.json_lines.object_lines import ObjectLines
from milepost.sources.kernel.arrow_errors import DATA_ERRORS
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.kernel.diagnosis import (
    BLOCK_BYTES,
    Lines,
    RawRecord,
    chunks,
    first_rejected,
    split_bad_records,
    too_long_record,
)
from milepost.sources.kernel.streams import ObjectBody, ObjectStream, open_object

_BLANK = " \t\r\n"
_TOO_DEEP = "is nested too deeply to be read"


class JsonLinesReader:
    """Reads JSON lines objects; picklable, holds no open file."""

    def __init__(self, declared: DeclaredColumns) -> None:
        self._declared, self.schema = declared, declared.schema
        self._expected = ExpectedValues(declared.types, declared.event_time)

    def read_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the lines that begin in the part's bytes, in order, in batches of about 1 MB of text.

        Raises:
            BadRecord: the first record that cannot be read; or, at the end, a required column that no line has.
            CommitConflict: the object's version differs. NotFound: the object was deleted.
        """
        obj = part.object
        values = self._declared.path_columns.values(obj)
        body = open_object(store, obj)
        content = ObjectStream(obj.key, body, lines=None if part.is_whole else (part.start, part.stop))
        unseen = set(self._declared.required)
        rows = 0
        try:
            for batch in self._batches(content, self._declared.file_schema, first=part.start == 0):
                rows += batch.num_rows
                unseen = _all_null(batch, unseen)
                if batch.num_rows:
                    yield self._declared.path_columns.append(batch, values)
        except (*DATA_ERRORS, UnicodeDecodeError) as error:
            cause = self._diagnose(obj.key, body)
            raise cause or BadRecord(
                obj.key, None, None, None, "it cannot be read", engine_message=str(error)
            ) from error
        if rows:
            self._refuse_missing(part, body, unseen)

    def salvage_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch | BadRecord]:
        """Yield the readable rows of the part in order, and a BadRecord for each other line.

        Raises:
            BadObject: it cannot be read at all, or no line has a required column.
            CommitConflict, NotFound: as `read_part`.
        """
        obj = part.object
        values = self._declared.path_columns.values(obj)
        body = open_object(store, obj)
        unseen = set(self._declared.required)
        rows = 0
        for chunk in chunks(_records_of(part, body)):
            good, bad = split_bad_records(
                chunk,
                lambda records: self._complaint(self._declared.file_schema, records) is None,
                lambda record: self._expected.looks_bad(record.text),
            )
            content = _content(good)
            for batch in self._batches(io.BytesIO(content), self._declared.file_schema, block_size=len(content) + 1):
                rows += batch.num_rows
                unseen = _all_null(batch, unseen)
                yield self._declared.path_columns.append(batch, values)
            for record in bad:
                yield too_long_record(obj.key, record) if record.is_too_long else self._explain(obj.key, record)
        if rows:
            self._refuse_missing(part, body, unseen)

    def _batches(
        self,
        content: io.RawIOBase | io.BytesIO,
        columns: pa.Schema,
        *,
        block_size: int = BLOCK_BYTES,
        untimed: bool = False,
        first: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the content's rows in the declared types, with the event time as a timestamp unless `untimed`.

        Raises:
            ArrowInvalid: a line is not one object, or a value is not of its type.
            BadRecord: from reading `content`.
        """
        lines = ObjectLines(content, first=first)
        rows = 0
        try:
            for raw in pajson.open_json(
                pa.PythonFile(lines, mode="r"),
                read_options=pajson.ReadOptions(use_threads=False, block_size=block_size),
                parse_options=pajson.ParseOptions(
                    explicit_schema=pa.schema([pa.field(f.name, _as_parsed(f.type)) for f in columns]),
                    unexpected_field_behavior="ignore",
                ),
            ):
                rows += raw.num_rows
                yield self._converted(raw, columns, untimed=untimed)
        except pa.ArrowInvalid:
            if lines.is_blank:  # the parser rejects empty content
                return
            raise
        if rows != lines.count:
            raise pa.ArrowInvalid(f"{lines.count} lines contain {rows} values")

    def _converted(self, raw: pa.RecordBatch, columns: pa.Schema, *, untimed: bool) -> pa.RecordBatch:
        """Convert a batch to the declared types. Raises ArrowInvalid: a value does not fit, or is not an event time."""
        raw.validate(full=True)  # the parser accepts text that is not UTF-8
        batch = pa.RecordBatch.from_arrays([raw[f.name].cast(f.type) for f in columns], schema=columns)
        return batch if untimed else self._declared.timed(batch)

    # -- the second pass ----------------------------------------------------------------------------------------

    def _complaint(self, columns: pa.Schema, records: list[RawRecord], *, untimed: bool = False) -> str | None:
        """Return the engine's error message for these records, or None if it reads them."""
        try:
            for _ in self._parsed(columns, records, untimed=untimed):
                pass
        except (*DATA_ERRORS, UnicodeDecodeError) as error:
            return str(error)
        return None

    def _parsed(self, columns: pa.Schema, records: list[RawRecord], *, untimed: bool) -> Iterator[pa.RecordBatch]:
        body = _content(records)
        return self._batches(io.BytesIO(body), columns, block_size=len(body) + 1, untimed=untimed)

    def _diagnose(self, key: str, body: ObjectBody) -> BadRecord | None:
        """Return the object's first bad record, or None if all are readable."""
        suspect: RawRecord | None = None

        def records() -> Iterator[RawRecord]:
            nonlocal suspect
            for record in _records(key, body):
                if suspect is None and record.is_too_long:
                    suspect = record
                yield record

        try:
            refused = first_rejected(
                records(), lambda chunk: self._complaint(self._declared.file_schema, chunk) is None
            )
        except BadRecord as bad:
            return bad
        if refused is not None:
            return self._explain(key, refused)
        return None if suspect is None else too_long_record(key, suspect)

    def _explain(self, key: str, record: RawRecord) -> BadRecord:
        text = record.encoded().decode("utf-8", "replace").strip(_BLANK)

        def bad(column: str | None, value: str, reason: str, engine_message: str = "") -> BadRecord:
            return BadRecord(key, record.line, column, value, reason, engine_message=engine_message, raw=record.raw)

        try:
            fields = json.loads(text, parse_int=_integer)
        except json.JSONDecodeError as error:
            several = error.msg == "Extra data"
            return bad(None, text, "contains several JSON values" if several else "is not JSON")
        except RecursionError:
            return bad(None, text, _TOO_DEEP)
        if not isinstance(fields, dict):
            return bad(None, text, "is not a JSON object")
        record_error = self._complaint(pa.schema([]), [record])
        if record_error is not None:  # every column would fail with the same message
            return bad(None, text, "cannot be read", record_error)
        # Start at the first column that looks wrong, if the engine accepts all columns before it.
        likely = self._expected.first_mismatch(fields)
        before = pa.schema([*self._declared.file_schema][:likely])
        begin = likely if likely and self._complaint(before, [record]) is None else 0
        for column in [*self._declared.file_schema][begin:]:
            alone = pa.schema([column])
            complaint = self._complaint(alone, [record])
            if complaint is None:
                continue
            value = fields.get(column.name)
            shown = value if isinstance(value, str) else _value_text(value)
            if self._complaint(alone, [record], untimed=True) is None:
                reason = self._declared.fault(next(self._parsed(alone, [record], untimed=True))[0][0])
            elif "UTF8" in complaint:
                reason = "is not valid UTF-8"
            elif "specified twice" in complaint:
                reason = "is twice in the record"
            else:
                mismatch = self._declared.type_mismatch(column.name, value)
                reason = f"is not of type {self._declared.types[column.name]}{mismatch}"
            return bad(column.name, shown, reason)
        return bad(None, text, "cannot be read")

    def _without_value(self, key: str, body: ObjectBody, columns: set[str]) -> set[str]:
        """Return those columns that have no value in the whole object, as far as it can be read."""
        schema = pa.schema([field for field in self._declared.file_schema if field.name in columns])
        with suppress(*DATA_ERRORS, UnicodeDecodeError):
            for batch in self._batches(ObjectStream(key, body), schema, untimed=True):
                columns = _all_null(batch, columns)
                if not columns:
                    break
        return columns

    def _refuse_missing(self, part: ObjectPart, body: ObjectBody, unseen: set[str]) -> None:
        """Raise BadObject if a column without a value in the part is not a field of any valid line of the object."""
        key, first_fields = part.object.key, dict[str, object]()
        if unseen and not part.is_whole:
            unseen = self._without_value(key, body, unseen)
        if not unseen:
            return
        for record in _records(key, body):
            try:
                fields = json.loads(record.text, parse_int=_integer)
            except RecursionError:  # the parser skips an undeclared field however deep it is, so it accepted the line
                text = record.text.strip()
                raise BadObject(key, record.line, None, text, _TOO_DEEP, raw=record.raw) from None
            except ValueError:  # a bad record, which is reported separately
                continue
            if isinstance(fields, dict):
                unseen, first_fields = unseen - fields.keys(), first_fields or fields
            if not unseen:
                return
        name = next(name for name in self._declared.required if name in unseen)
        problem = "is not in any record"
        content = f"the first one has {', '.join(first_fields) or 'none'}"
        raise self._declared.missing_column_error(key, name, problem, first_fields, content=content)


def _records_of(part: ObjectPart, body: ObjectBody) -> Iterator[RawRecord]:
    key = part.object.key
    if part.is_whole:
        return _records(key, body)
    stream = ObjectStream(key, body, lines=(part.start, part.stop))
    return _of_lines(Lines(key, stream, body.lines_before(part.start)))


def _records(key: str, body: ObjectBody) -> Iterator[RawRecord]:
    return _of_lines(Lines(key, ObjectStream(key, body)))


def _of_lines(lines: Lines) -> Iterator[RawRecord]:
    for line in lines:
        lines.take()
        if line.strip(_BLANK):
            yield RawRecord(lines.count, line)


def _all_null(batch: pa.RecordBatch, columns: set[str]) -> set[str]:
    """Return the columns among `columns` that have only nulls in a batch."""
    return {name for name in columns if batch[name].null_count == batch.num_rows}


def _content(records: list[RawRecord]) -> bytes:
    """Join records, in object order, to bytes. Only the last line of an object can lack its line end."""
    return RawRecord(0, "".join([record.text for record in records])).encoded() if records else b""


def _integer(digits: str) -> int | str:
    """Convert digits to a number, unless there are more than Python converts."""
    return int(digits) if len(digits) < 1000 else digits


def _value_text(value: object) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return str(type(value).__name__)


def _as_parsed(type_: pa.DataType) -> pa.DataType:
    """Return the type for the parser: a string for dates, which it cannot parse, and times, whose zone it guesses."""
    return pa.string() if pa.types.is_timestamp(type_) or pa.types.is_date(type_) else type_
