"""The text of CSV as records, one by one and slowly: where the engine's complaint is not enough."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import pyarrow.csv as pacsv

from milepost.sources.contract import BadObject
from milepost.sources.readers.diagnosis import BLOCK_BYTES, Lines, RawRecord


class CsvText:
    """Splits text into records and fields as the engine does; picklable.

    Args:
        parse: what the engine splits by. skip_rows: lines before the header. has_header: the names are in the text.
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
        """Return the first record of an object's lines: its header, if it has one."""
        self._pass_rows(lines)
        return next(self._records(lines), None)

    def records(self, lines: Lines) -> Iterator[RawRecord]:
        """Yield the records of an object's lines, those after its header; blank ones left out."""
        self._pass_rows(lines)
        found = self._records(lines)
        if self._has_header:
            next(found, None)
        return (record for record, _ in found)

    def records_alone(self, lines: Lines) -> Iterator[RawRecord]:
        """Yield the records of lines among which there is no header; blank ones left out."""
        return (record for record, _ in self._records(lines))

    def fields(self, record: RawRecord) -> list[str]:
        """Return the fields of a record."""
        return next(csv.reader(io.StringIO(record.text, newline=""), **self._dialect))

    def is_unclosed(self, record: RawRecord) -> bool:
        """Return whether a quote of a record is still open at its end: a line that follows would be of it, too."""
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
