"""Parse lines that are one JSON object each with pyarrow, and explain why it rejects one."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.json as pajson

from milepost.sources.contract import BadRecord
from milepost.sources.json_lines.expected_values import ExpectedValues
from milepost.sources.json_lines.object_lines import ObjectLines
from milepost.sources.kernel.arrow_errors import DATA_ERRORS
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.kernel.diagnosis import BLOCK_BYTES, RawRecord

BLANK = " \t\r\n"
TOO_DEEP = "is nested too deeply to be read"


class JsonObjects:
    """Parses JSON objects as rows of the declared columns; picklable."""

    def __init__(self, declared: DeclaredColumns) -> None:
        self._declared = declared
        self._expected = ExpectedValues(declared.types, declared.event_time)

    def batches(
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
            for raw in _parsed(pa.PythonFile(lines, mode="r"), columns, block_size):
                rows += raw.num_rows
                yield self._converted(raw, columns, untimed=untimed)
        except pa.ArrowInvalid:
            if lines.is_blank:  # the parser rejects empty content
                return
            raise
        if rows != lines.count:
            raise pa.ArrowInvalid(f"{lines.count} lines contain {rows} values")

    def rows(self, text: pa.Buffer, count: int) -> pa.RecordBatch:
        r"""Return the rows of `count` values, each of which begins with `{` and ends with `}`, separated by line ends.

        Values may contain line ends, but not in a string, so every separator is outside of all objects, and each value
        has at least one object. If there are as many rows as values, row n is value n.

        Raises:
            ArrowInvalid: a value is not one object, or something in it is not of its type.
        """
        columns = self._declared.file_schema
        batches = [*_parsed(pa.BufferReader(text), columns, text.size + 1)]
        if len(batches) != 1 or batches[0].num_rows != count:
            raise pa.ArrowInvalid(f"{count} values contain {sum(batch.num_rows for batch in batches)} objects")
        return self._converted(batches[0], columns, untimed=False)

    def _converted(self, raw: pa.RecordBatch, columns: pa.Schema, *, untimed: bool) -> pa.RecordBatch:
        """Convert a batch to the declared types. Raises ArrowInvalid: a value does not fit, or is not an event time."""
        raw.validate(full=True)  # the parser accepts text that is not UTF-8
        batch = pa.RecordBatch.from_arrays([raw[f.name].cast(f.type) for f in columns], schema=columns)
        return batch if untimed else self._declared.timed(batch)

    def complaint(self, columns: pa.Schema, records: list[RawRecord], *, untimed: bool = False) -> str | None:
        """Return the engine's error message for these records, or None if it reads them."""
        try:
            for _ in self.parsed(columns, records, untimed=untimed):
                pass
        except (*DATA_ERRORS, UnicodeDecodeError) as error:
            return str(error)
        return None

    def parsed(
        self, columns: pa.Schema, records: list[RawRecord], *, untimed: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of records as `batches` does, in one batch."""
        body = joined(records)
        return self.batches(io.BytesIO(body), columns, block_size=len(body) + 1, untimed=untimed, first=False)

    def looks_bad(self, record: RawRecord) -> bool:
        """Return whether the parser will probably reject a record."""
        return self._expected.looks_bad(record.text)

    def explain(self, key: str, record: RawRecord) -> BadRecord:
        """Return the error of a record that the parser rejects."""
        text = record.encoded().decode("utf-8", "replace").strip(BLANK)

        def bad(column: str | None, value: str, reason: str, engine_message: str = "") -> BadRecord:
            return BadRecord(key, record.line, column, value, reason, engine_message=engine_message, raw=record.raw)

        try:
            fields = json.loads(text, parse_int=as_integer)
        except json.JSONDecodeError as error:
            several = error.msg == "Extra data"
            return bad(None, text, "contains several JSON values" if several else "is not JSON")
        except RecursionError:
            return bad(None, text, TOO_DEEP)
        if not isinstance(fields, dict):
            return bad(None, text, "is not a JSON object")
        record_error = self.complaint(pa.schema([]), [record])
        if record_error is not None:  # every column would fail with the same message
            return bad(None, text, "cannot be read", record_error)
        # Start at the first column that looks wrong, if the engine accepts all columns before it.
        likely = self._expected.first_mismatch(fields)
        before = pa.schema([*self._declared.file_schema][:likely])
        begin = likely if likely and self.complaint(before, [record]) is None else 0
        for column in [*self._declared.file_schema][begin:]:
            alone = pa.schema([column])
            complaint = self.complaint(alone, [record])
            if complaint is None:
                continue
            value = fields.get(column.name)
            shown = value if isinstance(value, str) else _value_text(value)
            if self.complaint(alone, [record], untimed=True) is None:
                reason = self._declared.fault(next(self.parsed(alone, [record], untimed=True))[0][0])
            elif "UTF8" in complaint:
                reason = "is not valid UTF-8"
            elif "specified twice" in complaint:
                reason = "is twice in the record"
            else:
                mismatch = self._declared.type_mismatch(column.name, value)
                reason = f"is not of type {self._declared.types[column.name]}{mismatch}"
            return bad(column.name, shown, reason)
        return bad(None, text, "cannot be read")


def _parsed(file: pa.NativeFile, columns: pa.Schema, block_size: int) -> Iterator[pa.RecordBatch]:
    return pajson.open_json(
        file,
        read_options=pajson.ReadOptions(use_threads=False, block_size=block_size),
        parse_options=pajson.ParseOptions(
            explicit_schema=pa.schema([pa.field(f.name, _as_parsed(f.type)) for f in columns]),
            unexpected_field_behavior="ignore",
        ),
    )


def joined(records: list[RawRecord]) -> bytes:
    """Join records, in object order, to bytes. Only the last line of an object can lack its line end."""
    return RawRecord(0, "".join([record.text for record in records])).encoded() if records else b""


def as_integer(digits: str) -> int | str:
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
