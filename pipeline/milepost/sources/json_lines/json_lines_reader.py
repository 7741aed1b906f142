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

from milepost.protocol.records import ObjectStore
from milepost.sources.contract import BadObject, BadRecord, ObjectPart, SourceObject
from milepost.sources.json_lines.json_objects import BLANK, TOO_DEEP, JsonObjects, as_integer, joined
from milepost.sources.kernel.arrow_errors import DATA_ERRORS
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.kernel.diagnosis import (
    Lines,
    RawRecord,
    chunks,
    first_rejected,
    split_bad_records,
    too_long_record,
)
from milepost.sources.kernel.streams import ObjectBody, ObjectStream, open_object


class JsonLinesReader:
    """Reads JSON lines objects; picklable, holds no open file."""

    def __init__(self, declared: DeclaredColumns) -> None:
        self._declared, self.schema = declared, declared.schema
        self._objects = JsonObjects(declared)

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
            for batch in self._objects.batches(content, self._declared.file_schema, first=part.start == 0):
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
                lambda records: self._objects.complaint(self._declared.file_schema, records) is None,
                self._objects.looks_bad,
            )
            content = joined(good)
            for batch in self._objects.batches(
                io.BytesIO(content), self._declared.file_schema, block_size=len(content) + 1, first=False
            ):
                rows += batch.num_rows
                unseen = _all_null(batch, unseen)
                yield self._declared.path_columns.append(batch, values)
            for record in bad:
                yield too_long_record(obj.key, record) if record.is_too_long else self._objects.explain(obj.key, record)
        if rows:
            self._refuse_missing(part, body, unseen)

    def record_lines(self, store: ObjectStore, obj: SourceObject) -> Iterator[int]:
        """Yield the line, from 1, of each record of an object, in order. Raises as `salvage_part`."""
        return (record.line for record in _records(obj.key, open_object(store, obj)))

    # -- the second pass ----------------------------------------------------------------------------------------

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
                records(), lambda chunk: self._objects.complaint(self._declared.file_schema, chunk) is None
            )
        except BadRecord as bad:
            return bad
        if refused is not None:
            return self._objects.explain(key, refused)
        return None if suspect is None else too_long_record(key, suspect)

    def _without_value(self, key: str, body: ObjectBody, columns: set[str]) -> set[str]:
        """Return those columns that have no value in the whole object, as far as it can be read."""
        schema = pa.schema([field for field in self._declared.file_schema if field.name in columns])
        with suppress(*DATA_ERRORS, UnicodeDecodeError):
            for batch in self._objects.batches(ObjectStream(key, body), schema, untimed=True):
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
                fields = json.loads(record.text, parse_int=as_integer)
            except RecursionError:  # the parser skips an undeclared field however deep it is, so it accepted the line
                text = record.text.strip()
                raise BadObject(key, record.line, None, text, TOO_DEEP, raw=record.raw) from None
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
        if line.strip(BLANK):
            yield RawRecord(lines.count, line)


def _all_null(batch: pa.RecordBatch, columns: set[str]) -> set[str]:
    """Return the columns among `columns` that have only nulls in a batch."""
    return {name for name in columns if batch[name].null_count == batch.num_rows}
