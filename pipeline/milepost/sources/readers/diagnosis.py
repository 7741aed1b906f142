"""The diagnosis finds the first bad record of an object by reading it again, line by line.

The judge is the same engine that failed: records are offered to it in chunks, and a chunk it refuses is halved until
one record is left. So what is reported is exactly what the fast path could not read.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from milepost.sources.contract import MAX_RAW_BYTES, BadObject, BadRecord
from milepost.sources.readers.streams import ObjectStream

BLOCK_BYTES = 1 << 20
"""The readers' block: about the size of a batch, and the longest record that is read."""

_CHUNK_RECORDS = 4096
_GUESSED_RECORDS = 512
"""So many are halved no further where somebody can guess which of them are bad."""

Accepts: TypeAlias = Callable[[list["RawRecord"]], bool]
"""Whether the engine reads these records, taken together, without complaint."""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record as text (undecodable bytes as surrogates) and the 1-based line where it begins."""

    line: int
    text: str

    def encoded(self) -> bytes:
        """Return its bytes, ended by a newline."""
        body = self.text.encode("utf-8", "surrogateescape")
        return body if body.endswith((b"\n", b"\r")) else body + b"\n"

    @property
    def raw(self) -> bytes:
        """Its first bytes, without its line end: those of a dead letter."""
        return self.encoded().rstrip(b"\r\n")[:MAX_RAW_BYTES]

    @property
    def spans_lines(self) -> bool:
        """Whether a quoted line end is in it."""
        return "\n" in (text := self.text.rstrip("\r\n")) or "\r" in text

    @property
    def is_too_long(self) -> bool:
        """Whether it does not fit into a block of the readers."""
        return len(self.encoded()) > BLOCK_BYTES


class Lines:
    """The physical lines of an object, counted; the lines of one record are bounded together.

    Attributes:
        key: of the object. count: lines of it so far. bytes: that were read, a byte order mark included.

    Args:
        before: lines of the object that are not in the stream.
    """

    def __init__(self, key: str, stream: ObjectStream, before: int = 0) -> None:
        self.key = key
        # newline="" keeps line ends as they are and still knows \n, \r and \r\n.
        self._text = io.TextIOWrapper(
            io.BufferedReader(stream, 1 << 16), encoding="utf-8", errors="surrogateescape", newline=""
        )
        self.count, self.bytes = before, 0
        self._taken: list[str] = []
        self._taken_size = 0

    def __iter__(self) -> Iterator[str]:
        while True:
            line = self._text.readline(2 * BLOCK_BYTES)
            if not line:
                return
            self._taken_size += len(line)
            if self._taken_size >= 2 * BLOCK_BYTES:
                first = self.count + 1 - len(self._taken)
                text = (self._taken or [line])[0]
                bad = too_long_record(self.key, RawRecord(first, text[:BLOCK_BYTES]))
                raise BadObject(bad.key, bad.line, bad.column, bad.value, bad.reason, raw=bad.raw)
            self.count += 1
            self.bytes += utf8_size(line)
            if self.count == 1:
                line = line.removeprefix("\ufeff")
            self._taken.append(line)
            yield line

    def take(self) -> str:
        """Return the text since the last take: the record that the lines read meanwhile make up."""
        text = "".join(self._taken)
        self._taken, self._taken_size = [], 0
        return text


def utf8_size(text: str) -> int:
    """Return the bytes of a text."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def too_long_record(key: str, record: RawRecord) -> BadRecord:
    """Return the error of a record beyond the bound."""
    reason = f"begins a record longer than {BLOCK_BYTES:,} bytes"
    return BadRecord(key, record.line, None, record.text[:200], reason, raw=record.raw)


def first_rejected(records: Iterable[RawRecord], accepts: Accepts) -> RawRecord | None:
    """Return the first record, in object order, that makes the engine refuse, or None when it accepts all."""
    for chunk in chunks(records):
        if not accepts(chunk):
            return _bisect(chunk, accepts)
    return None


def _find_rejected(
    records: list[RawRecord], accepts: Accepts, looks_bad: Callable[[RawRecord], bool] | None
) -> list[RawRecord]:
    """Return every record that the engine refuses by itself."""
    if not records or accepts(records):
        return []
    if len(records) == 1:
        return records
    if looks_bad is not None and len(records) <= _GUESSED_RECORDS:
        guessed = [one for one in records if looks_bad(one)]
        if 0 < len(guessed) <= len(records) // 2:  # else the guess is not worth a call for each
            lines = {one.line for one in guessed}
            others = [one for one in records if one.line not in lines]
            return _find_rejected(others, accepts, None) + [one for one in guessed if not accepts([one])]
        looks_bad = None
    half = len(records) // 2
    return _find_rejected(records[:half], accepts, looks_bad) + _find_rejected(records[half:], accepts, looks_bad)


def split_bad_records(
    records: list[RawRecord], accepts: Accepts, looks_bad: Callable[[RawRecord], bool] | None = None
) -> tuple[list[RawRecord], list[RawRecord]]:
    """Return the records that can be read and those that cannot, too long ones among them, each in order.

    Args:
        seems_bad: a guess at what the engine refuses, which saves it calls and decides nothing; None: there is none.
    """
    refused = _find_rejected(records, accepts, looks_bad)
    bad = {record.line for record in [*refused, *(one for one in records if one.is_too_long)]}
    return [one for one in records if one.line not in bad], [one for one in records if one.line in bad]


def chunks(records: Iterable[RawRecord]) -> Iterator[list[RawRecord]]:
    """Yield records in order, as many together as are offered to an engine at once."""
    chunk: list[RawRecord] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += len(record.text)
        if len(chunk) == _CHUNK_RECORDS or size > 4 * BLOCK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _bisect(records: list[RawRecord], accepts: Callable[[list[RawRecord]], bool]) -> RawRecord:
    while len(records) > 1:
        half = len(records) // 2
        records = records[:half] if not accepts(records[:half]) else records[half:]
    return records[0]
