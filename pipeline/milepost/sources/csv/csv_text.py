"""Split CSV text into records one by one: the slow path, to locate what pyarrow rejected."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import pyarrow.csv as pacsv

from milepost.sources.contract import BadObject
from milepost.sources.kernel.diagnosis import BLOCK_BYTES, Lines, RawRecord


class CsvText:
    """Splits text into records and fields as pyarrow does; picklable.

    Args:
        parse: pyarrow's parse options.
        skip_rows: number of lines before the header.
        has_header: whether the text contains the column names.
    """

    def __init__(self, parse: pacsv.ParseOptions, skip_rows: int, *, has_header: bool) -> None:
        self._skip_rows, self._has_header = skip_rows, has_header
        quote, escape = parse.quote_char, parse.escape_char
        self._dialect: dict[str, Any] = {
            "delimiter": parse.delimiter,
            "quotechar": quote or None,
            "quoting": csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
            "doublequote": bool(parse.double_quote),
            "escapechar": escape or None,
        }

    def header(self, lines: Lines) -> tuple[RawRecord, list[str]] | None:
        """Return the first record of an object and its fields. It is the header, if there is one."""
        self._pass_rows(lines)
        return next(self._records(lines), None)

    def records(self, lines: Lines) -> Iterator[RawRecord]:
        """Yield the records of an object after its header, without blank ones."""
        self._pass_rows(lines)
        parsed = self._records(lines)
        if self._has_header:
            next(parsed, None)
        return (record for record, _ in parsed)

    def records_alone(self, lines: Lines) -> Iterator[RawRecord]:
        """Yield the records of lines without a header, without blank ones."""
        return (record for record, _ in self._records(lines))

    def fields(self, record: RawRecord) -> list[str]:
        """Return the fields of a record."""
        return next(csv.reader(io.StringIO(record.text, newline=""), **self._dialect))

    def is_unclosed(self, record: RawRecord) -> bool:
        """Return whether a quote is still open at the end of a record.

        A line "x" is appended: after `1,"ab` the csv module reads it as part of the same record, after `1,"ab"` not.
        """
        lines = [*io.StringIO(record.text, newline="")]
        reader = csv.reader([*lines, "x"], **self._dialect)
        try:
            next(reader, None)
        except csv.Error:
            return False
        return reader.line_num > len(lines)

    def _pass_rows(self, lines: Lines) -> None:
        for _, _line in zip(range(self._skip_rows), lines, strict=False):
            pass

    def _records(self, lines: Lines) -> Iterator[tuple[RawRecord, list[str]]]:
        csv.field_size_limit(max(csv.field_size_limit(), 4 * BLOCK_BYTES))
        reader = csv.reader(iter(lines), **self._dialect)
        while True:
            lines.take()
            start = lines.count + 1
            try:
                fields = next(reader, None)
            except csv.Error as error:
                text = lines.take()
                raw = RawRecord(start, text).raw
                raise BadObject(
                    lines.key, start, None, text, "is not CSV", engine_message=str(error), raw=raw
                ) from error
            if fields is None:
                return
            if fields:
                yield RawRecord(start, lines.take()), fields
