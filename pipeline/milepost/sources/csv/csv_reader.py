"""Read CSV objects as record batches with pyarrow's streaming reader.

Columns are matched by header name. If values cannot contain newlines, each line is a record and an object can be read
from its middle; the reader checks that there are as many records as lines. pyarrow does not reliably report the line of
a bad value (a quoted newline or an empty line shifts it). So on any error the object is read again to find the first
bad record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pacsv

from milepost.errors import InvalidRequest
from milepost.language import ColumnType, records_are_lines
from milepost.protocol.records import ObjectStore
from milepost.sources.contract import BadObject, BadRecord, ObjectPart, SourceObject, printable, whole_object
from milepost.sources.csv.csv_text import CsvText
from milepost.sources.csv.record_lines import RecordLines
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
    utf8_size,
)
from milepost.sources.kernel.streams import ObjectBody, ObjectStream, open_object

_PARSE = {"delimiter", "quote_char", "double_quote", "escape_char", "newlines_in_values"}
_CONVERT = {
    "null_values",
    "true_values",
    "false_values",
    "strings_can_be_null",
    "quoted_strings_can_be_null",
    "decimal_point",
    "timestamp_parsers",
}


class _Header(NamedTuple):
    """Column names of an object, and the offset where its records begin in the decompressed UTF-8 text."""

    names: list[str]
    end: int


class CsvReader:
    """Reads CSV objects; picklable, holds no open file."""

    def __init__(self, declared: DeclaredColumns, options: Mapping[str, Any] | None = None) -> None:
        """Check the options with pyarrow.

        Args:
            options: options of pyarrow.csv by name. Unlike there, `newlines_in_values` defaults to true. If it is
                false, a quoted newline is always refused; pyarrow refuses it depending on where a block ends.

        Raises:
            InvalidRequest: pyarrow does not accept the value of an option.
        """
        options = dict(options or {})
        self._declared, self.schema = declared, declared.schema
        self._skip_rows = int(options.get("skip_rows", 0))
        self._column_names = list(options["column_names"]) if options.get("column_names") else None
        self._encoding = options.get("encoding", "utf-8")
        self._by_line = records_are_lines(options)
        try:
            "".encode(self._encoding)  # unlike codecs.lookup, this refuses base64 and similar codecs
            self._parse_options = {"newlines_in_values": True} | {
                name: options[name] for name in _PARSE & options.keys()
            }
            self._convert_options = {name: options[name] for name in _CONVERT & options.keys()}
            # pyarrow checks some values only when it reads.
            pacsv.read_csv(
                pa.BufferReader(b"x\n"),
                pacsv.ReadOptions(use_threads=False, column_names=["x"]),
                self._parse,
                pacsv.ConvertOptions(**self._convert_options),
            )
            self._text = CsvText(self._parse, self._skip_rows, has_header=self._column_names is None)
        except (*DATA_ERRORS, LookupError, TypeError, ValueError) as error:
            raise InvalidRequest(f"sources.{declared.source}.options: {error}.") from error

    def read_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the records that begin in the part's bytes, in order, in batches of about 1 MB of text.

        If records are not lines, the part must be the whole object.

        Raises:
            BadRecord: the first record that cannot be read. CommitConflict: the object's version differs.
            NotFound: the object was deleted.
        """
        obj = part.object
        values = self._declared.path_columns.values(obj)
        body = open_object(store, obj)
        header = self._header(obj.key, body)
        if header is None:
            return
        names, _ = header
        stream = self._stream(part, body, header)
        lines = RecordLines(stream, partial(self._is_closed, names)) if self._by_line else None
        rows = 0
        try:
            for batch in self._open(stream) if lines is None else self._open(lines, names):
                rows += batch.num_rows
                if batch.num_rows:
                    yield self._declared.path_columns.append(self._declared.timed(batch), values)
        except (*DATA_ERRORS, UnicodeDecodeError) as error:
            if lines is not None and lines.is_blank:  # no record begins in the part
                return
            cause = self._diagnose(obj.key, body, names)
            if isinstance(cause, BadRecord):
                raise cause from error
            if cause > 0:  # there are records and each one is readable: only the engine's message is left
                raise BadRecord(obj.key, None, None, None, "it cannot be read", engine_message=str(error)) from error
            return
        if lines is not None:
            if rows != lines.count:
                raise self._diagnosed(obj.key, body, names, f"{lines.count} lines contain {rows} records")
        # An object truncated inside a quoted field parses as one long value. An odd number of quotes reveals it.
        elif stream.quotes % 2:
            cause = self._diagnose(obj.key, body, names)
            if isinstance(cause, BadRecord):
                raise cause

    def salvage_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch | BadRecord]:
        """Yield the readable rows of the part in order, and a BadRecord for each other record.

        Each record is judged on its own as long as record boundaries are certain. From a bad record that spans lines,
        or never closes a quote, they are not: one extra quote joins lines that are separate records.

        Raises:
            BadObject: the object cannot be read at all, or record boundaries are uncertain.
            CommitConflict, NotFound: as `read_part`.
        """
        key = part.object.key
        values = self._declared.path_columns.values(part.object)
        body = open_object(store, part.object)
        header = self._header(key, body)
        if header is None:
            return
        names, _ = header
        columns = self._declared.file_schema.names
        last: RawRecord | None = None
        for chunk in chunks(self._records(part, body, header)):
            last = chunk[-1]
            good, bad = split_bad_records(
                chunk, lambda records: self._accepts(names, columns, records, one_row_each=True)
            )
            for batch in self._parsed(names, columns, good).to_batches():
                yield self._declared.path_columns.append(self._declared.timed(batch), values)
            for record in bad:
                yield self._bad_record(key, record, names)
        if last is not None and self._text.is_unclosed(last):
            raise _unclosed(key, last)

    def record_lines(self, store: ObjectStore, obj: SourceObject) -> Iterator[int]:
        """Yield the line, from 1, at which each record of an object begins, in order. Raises as `salvage_part`."""
        body = open_object(store, obj)
        header = self._header(obj.key, body)
        if header is not None:
            yield from (record.line for record in self._records(whole_object(obj), body, header))

    def _records(self, part: ObjectPart, body: ObjectBody, header: _Header) -> Iterator[RawRecord]:
        key = part.object.key
        if part.is_whole:
            return self._text.records(self._lines(key, body))
        start, stop = max(part.start, header.end), max(part.stop, header.end)
        stream = ObjectStream(key, body, lines=(start, stop))
        return self._text.records_alone(Lines(key, stream, body.lines_before(start)))

    def _bad_record(self, key: str, record: RawRecord, names: list[str]) -> BadRecord:
        """Return the error of a bad record. Raises BadObject: its boundaries are uncertain."""
        if self._text.is_unclosed(record):
            raise _unclosed(key, record)
        if record.spans_lines:
            reason = "cannot be read and spans several lines: after a misplaced quote, record boundaries are uncertain"
            raise BadObject(key, record.line, None, record.text, reason, raw=record.raw)
        return too_long_record(key, record) if record.is_too_long else self._explain(key, record, names)

    # -- the engine ---------------------------------------------------------------------------------------------

    @property
    def _parse(self) -> pacsv.ParseOptions:
        # Rebuilt each time: an unpickled one prints a stack trace for every row with a wrong number of fields.
        return pacsv.ParseOptions(**self._parse_options)

    def _stream(self, part: ObjectPart, body: ObjectBody, header: _Header) -> ObjectStream:
        """Return the text to parse. If records are lines, it starts after the header."""
        key = part.object.key
        if not part.is_whole:
            return ObjectStream(key, body, lines=(max(part.start, header.end), max(part.stop, header.end)))
        if not self._by_line:
            return ObjectStream(key, body, encoding=self._encoding, quote=self._parse.quote_char or "")
        stream, to_skip = ObjectStream(key, body, encoding=self._encoding), header.end
        while to_skip:
            to_skip -= len(stream.read(to_skip) or b"")
        return stream

    def _is_closed(self, names: list[str], line: bytes) -> bool:
        """Return whether the engine ends a record at the end of this line.

        It parses the line twice: `1,"ab"` gives two rows. `1,"ab` gives one, because the second line continues it.
        """
        if not (quote := self._parse.quote_char) or quote.encode() not in line:
            return True
        record = RawRecord(0, line.decode("utf-8", "surrogateescape") + "\n")
        try:
            return self._parsed(names, [], [RawRecord(0, "\n"), record, record]).num_rows == 2
        except DATA_ERRORS:  # the main parser will report the error
            return False

    def _open(self, content: ObjectStream | RecordLines, names: list[str] | None = None) -> pacsv.CSVStreamingReader:
        """Open the parser. names: column names, for content without a header."""
        return pacsv.open_csv(
            pa.PythonFile(content, mode="r"),
            read_options=pacsv.ReadOptions(
                use_threads=False,
                block_size=BLOCK_BYTES,
                skip_rows=0 if names else self._skip_rows,
                column_names=names or self._column_names,
            ),
            parse_options=self._parse,
            convert_options=self._convert(self._declared.file_schema.names),
        )

    def _convert(self, names: list[str]) -> pacsv.ConvertOptions:
        return pacsv.ConvertOptions(
            column_types={name: self._declared.file_schema.field(name).type for name in names},
            include_columns=names,
            include_missing_columns=True,  # `_header` has checked that only optional ones are missing
            **self._convert_options,
        )

    def _parsed(self, names: list[str], columns: list[str], records: list[RawRecord]) -> pa.Table:
        """Parse some columns of these records. Raises ArrowException: one cannot be read."""
        body = b"".join(record.encoded() for record in records)
        return pacsv.read_csv(
            pa.BufferReader(body or b"\n"),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=len(body) + 1, column_names=names),
            parse_options=self._parse,
            convert_options=self._convert(columns),
        )

    def _accepts(
        self,
        names: list[str],
        columns: list[str],
        records: list[RawRecord],
        *,
        untimed: bool = False,
        one_row_each: bool = False,
    ) -> bool:
        """Return whether the records can be read.

        Args:
            untimed: do not check event times.
            one_row_each: require as many rows as records.
        """
        if self._by_line and any(record.spans_lines for record in records):
            return False
        try:
            table = self._parsed(names, columns, records)
            for batch in () if untimed else table.to_batches():
                self._declared.timed(batch)
        except DATA_ERRORS:
            return False
        return not one_row_each or bool(table.num_rows == len(records))

    # -- the second pass ----------------------------------------------------------------------------------------

    def _header(self, key: str, body: ObjectBody) -> _Header | None:
        """Return the object's columns, or None when it has no content. Raises BadRecord."""
        lines = Lines(key, ObjectStream(key, body.beginning(), encoding=self._encoding))
        first = self._text.header(lines)
        if first is None:
            return None
        record, fields = first
        names = self._column_names or [printable(field) for field in fields]
        # With `column_names` there is no header line to report.
        line = None if self._column_names else record.line
        for name in self._declared.file_schema.names:
            if names.count(name) > 1:
                raise BadObject(key, line, name, None, "is twice in the header", raw=record.raw)
            if name not in names and name in self._declared.required:
                content = f"it is: {record.text.strip()}"
                problem = "is not in the header"
                hint = self._other_delimiter(record.text, names)
                raise self._declared.missing_column_error(
                    key, name, problem, names, content=content, hint=hint, line=line, raw=record.raw
                )
        return _Header(names, lines.bytes - (utf8_size(record.text) if self._column_names else 0))

    def _other_delimiter(self, header: str, names: Sequence[str]) -> str:
        """Suggest a delimiter if the header is a single field; "" if another one would not find declared columns."""
        if len(names) != 1:
            return ""
        declared = set(self._declared.file_schema.names)
        counts = {mark: len(declared & {part.strip(' "\r\n') for part in header.split(mark)}) for mark in ",;\t|:"}
        mark = max(counts, key=lambda delimiter: counts[delimiter])
        return (
            f"; if its delimiter is {mark!r}, write `options: {{delimiter: {json.dumps(mark)}}}`"
            if counts[mark]
            else ""
        )

    def _diagnosed(self, key: str, body: ObjectBody, names: list[str], otherwise: str) -> BadRecord:
        cause = self._diagnose(key, body, names)
        return cause if isinstance(cause, BadRecord) else BadRecord(key, None, None, None, otherwise)

    def _diagnose(self, key: str, body: ObjectBody, names: list[str]) -> BadRecord | int:
        """Return the first bad record, or the number of records if all are readable."""
        count = 0
        last: RawRecord | None = None
        suspect: RawRecord | None = None

        def records() -> Iterator[RawRecord]:
            nonlocal count, last, suspect
            for record in self._text.records(self._lines(key, body)):
                count, last = count + 1, record
                if suspect is None and record.is_too_long:
                    suspect = record
                yield record

        try:
            refused = first_rejected(
                records(), lambda chunk: self._accepts(names, self._declared.file_schema.names, chunk)
            )
        except BadRecord as bad:
            return bad
        if last is not None and (refused is None or refused == last) and self._text.is_unclosed(last):
            return _unclosed(key, last)
        if refused is not None:
            return self._explain(key, refused, names)
        if suspect is not None:
            return too_long_record(key, suspect)
        return count

    def _explain(self, key: str, record: RawRecord, names: list[str]) -> BadRecord:
        fields = self._text.fields(record)

        def bad(column: str | None, value: str, reason: str) -> BadRecord:
            return BadRecord(key, record.line, column, value, reason, raw=record.raw)

        text = record.text.rstrip("\r\n")
        if self._by_line and record.spans_lines:
            return bad(None, text, "spans several lines, but options.newlines_in_values is false")
        if len(fields) != len(names):
            return bad(None, text, f"has {len(fields)} fields, the header has {len(names)}")
        for name in self._declared.file_schema.names:
            if self._accepts(names, [name], [record]):
                continue
            value = fields[names.index(name)]
            if not _is_utf8(value):
                return bad(name, value, "is not valid UTF-8")
            if self._accepts(names, [name], [record], untimed=True):
                return bad(name, value, self._declared.fault(self._parsed(names, [name], [record])[name][0]))
            mismatch = self._declared.type_mismatch(name, value)
            return bad(name, value, f"is not {_with_article(self._declared.types[name])}{mismatch}")
        return bad(None, text, "cannot be read")

    def _lines(self, key: str, body: ObjectBody) -> Lines:
        return Lines(key, ObjectStream(key, body, encoding=self._encoding))


def _unclosed(key: str, record: RawRecord) -> BadObject:
    return BadObject(key, record.line, None, record.text, "opens a quote that is never closed", raw=record.raw)


def _is_utf8(text: str) -> bool:
    with suppress(UnicodeEncodeError):
        text.encode()
        return True
    return False


def _with_article(type_: ColumnType) -> str:
    return f"an {type_}" if type_.kind.startswith("int") else f"a {type_}"
