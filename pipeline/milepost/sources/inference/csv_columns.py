"""Recognise separator and header of CSV files."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from milepost.sources.contract import printable
from milepost.sources.inference.proposal import refused
from milepost.sources.inference.text_heads import TextHead
from milepost.sources.inference.text_types import classify
from milepost.sources.kernel.diagnosis import BLOCK_BYTES

_DELIMITERS = (",", ";", "\t", "|")
_RECORDS = 500
_YEARS = range(1800, 2200)
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """How the files of a sample are written.

    Attributes:
        headers: the column names of each file. Without a header line, they are `column_1`, `column_2`, …
        has_header: whether the first line has column names.
    """

    delimiter: str
    headers: tuple[tuple[str, ...], ...]
    has_header: bool

    @property
    def delimiter_name(self) -> str:
        return _NAMES[self.delimiter]


def csv_layout(heads: Sequence[TextHead]) -> CsvLayout:
    """Return the layout of files with rows.

    Raises:
        InvalidRequest: files differ in it, or have no common columns.
    """
    found = [_delimiter(head) for head in heads]
    if len(set(found)) > 1:
        other = next(at for at, delimiter in enumerate(found) if delimiter != found[0])
        raise refused(
            f"{heads[0].key} is separated by {_NAMES[found[0]]}, and {heads[other].key} by {_NAMES[found[other]]}.",
            "Give them sources of their own: choose some of the files by a pattern.",
        )
    firsts = [_records(head, found[0], 1)[0] for head in heads]
    if any(_is_data(first) for first in firsts):
        return _without_header(heads, firsts, found[0])
    headers = tuple(tuple(map(printable, first)) for first in firsts)
    require_same_kind([head.key for head in heads], headers)
    return CsvLayout(found[0], headers, True)


def require_same_kind(keys: Sequence[str], columns: Sequence[Sequence[str]]) -> None:
    """Refuse files with mostly different columns. Raises InvalidRequest, naming two of them."""
    for key, names in zip(keys, columns, strict=True):
        common = set(names) & set(columns[0])
        if 2 * len(common) < min(len(set(names)), len(set(columns[0]))):
            raise refused(
                f"{keys[0]} and {key} have different columns: {_some(columns[0])}, and {_some(names)}.",
                "A source reads files of one kind: choose some of the files by a pattern.",
            )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4])[:80] + (", …" if len(names) > 4 else "")


def _records(head: TextHead, delimiter: str, most: int) -> list[list[str]]:
    """Return the first records that are not blank."""
    csv.field_size_limit(max(csv.field_size_limit(), 4 * BLOCK_BYTES))
    text = io.StringIO(head.text.removeprefix("\ufeff"), newline="")
    try:
        return [*islice((row for row in csv.reader(text, delimiter=delimiter) if row), most)]
    except csv.Error:
        return []


def _delimiter(head: TextHead) -> str:
    """Return the separator by which most records have as many fields as the first one; a comma if there is none."""
    best, choice = (0.0, 1), ","
    for delimiter in _DELIMITERS:
        records = _records(head.by_records(delimiter), delimiter, _RECORDS)
        width = len(records[0]) if records else 0
        if width < 2:
            continue
        agree = Counter(map(len, records))[width] / len(records)
        if (round(agree, 1), width) > best:
            best, choice = (round(agree, 1), width), delimiter
    return choice


def _is_data(first: Sequence[str]) -> bool:
    """Return whether a first record has a number or a time, which names of columns are not. Years may be names."""
    classes = {name for text in first for name in classify(pa.array([text], pa.string())).names if not _is_year(text)}
    return bool(classes - {"text", "boolean"})


def _is_year(text: str) -> bool:
    return text.strip().isdecimal() and int(text) in _YEARS


def _without_header(heads: Sequence[TextHead], firsts: Sequence[Sequence[str]], delimiter: str) -> CsvLayout:
    for head, first in zip(heads, firsts, strict=True):
        if not _is_data(first) or len(first) != len(firsts[0]):
            other = heads[0] if head is not heads[0] else heads[-1]
            raise refused(
                f"the first lines of {head.key} and {other.key} differ: only one is a header, or they have different "
                "numbers of fields.",
                "Write the same header into each file, or choose some of the files by a pattern.",
            )
    names = tuple(f"column_{at}" for at, _ in enumerate(firsts[0], 1))
    return CsvLayout(delimiter, (names,) * len(heads), False)
