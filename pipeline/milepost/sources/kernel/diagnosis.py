"""Find the bad records of an object by reading it again, line by line.

The engine that failed decides: it is given chunks of records, and a chunk that it rejects is halved until one record is
left. So the report names exactly the records that the fast path could not read.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from milepost.sources.contract import MAX_RAW_BYTES, BadObject, BadRecord
from milepost.sources.kernel.streams import ObjectStream

BLOCK_BYTES = 1 << 20
"""Block size of the readers. A batch is about as large, and a longer record is not read."""

_CHUNK_RECORDS = 4096
_GUESSED_RECORDS = 512
"""Chunks up to this size use the guess, if there is one, instead of further halving."""

Accepts: TypeAlias = Callable[[list["RawRecord"]], bool]
"""Returns whether the engine can read these records as one block."""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record as text (undecodable bytes as surrogates), and the 1-based line where it begins."""

    line: int
    text: str

    def encoded(self) -> bytes:
        """Return its bytes, with a line end."""
        body = self.text.encode("utf-8", "surrogateescape")
        return body if body.endswith((b"\n", b"\r")) else body + b"\n"

    @property
    def raw(self) -> bytes:
        """The bytes for a dead letter: cut, without the line end."""
        return self.encoded().rstrip(b"\r\n")[:MAX_RAW_BYTES]

    @property
    def spans_lines(self) -> bool:
        """Whether it contains a quoted line end."""
        return "\n" in (text := self.text.rstrip("\r\n")) or "\r" in text

    @property
    def is_too_long(self) -> bool:
        """Whether it exceeds a block of the readers."""
        return len(self.encoded()) > BLOCK_BYTES


class Lines:
    """The physical lines of an object, counted. The size limit applies to all lines of one record together.

    Attributes:
        key: key of the object.
        count: lines of the object so far.
        bytes: bytes read so far, including a byte order mark.

    Args:
        before: number of lines of the object in front of the stream.
    """

    def __init__(self, key: str, stream: ObjectStream, before: int = 0) -> None:
        self.key = key
        # newline="" splits at \n, \r and \r\n without changing them.
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
        """Return the lines read since the last call as one text: those of one record."""
        text = "".join(self._taken)
        self._taken, self._taken_size = [], 0
        return text


def utf8_size(text: str) -> int:
    """Return the size of a text in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def too_long_record(key: str, record: RawRecord) -> BadRecord:
    """Return the error for a record longer than `BLOCK_BYTES`."""
    reason = f"begins a record longer than {BLOCK_BYTES:,} bytes"
    return BadRecord(key, record.line, None, record.text[:200], reason, raw=record.raw)


def first_rejected(records: Iterable[RawRecord], accepts: Accepts) -> RawRecord | None:
    """Return the first record that the engine rejects, in object order, or None if it accepts all."""
    for chunk in chunks(records):
        if not accepts(chunk):
            return _bisect(chunk, accepts)
    return None


def find_rejected(
    records: list[RawRecord], accepts: Accepts, looks_bad: Callable[[RawRecord], bool] | None = None
) -> list[RawRecord]:
    """Return every record that the engine rejects on its own.

    With records 1 to 8, of which 6 is bad, the engine is called with 1-8, 1-4, 5-8, 5-6, 5, 6 and 7-8. If `looks_bad`
    guesses 6 right, with 1-8, then with the seven others together, then with 6.
    """
    if not records or accepts(records):
        return []
    if len(records) == 1:
        return records
    if looks_bad is not None and len(records) <= _GUESSED_RECORDS:
        suspects = [record for record in records if looks_bad(record)]
        if 0 < len(suspects) <= len(records) // 2:  # with more of them, one call for each costs more than halving
            lines = {record.line for record in suspects}
            others = [record for record in records if record.line not in lines]
            return find_rejected(others, accepts, None) + [record for record in suspects if not accepts([record])]
        looks_bad = None
    half = len(records) // 2
    return find_rejected(records[:half], accepts, looks_bad) + find_rejected(records[half:], accepts, looks_bad)


def split_bad_records(
    records: list[RawRecord], accepts: Accepts, looks_bad: Callable[[RawRecord], bool] | None = None
) -> tuple[list[RawRecord], list[RawRecord]]:
    """Split records into readable and bad ones, both in order. Records that are too long are bad.

    Args:
        looks_bad: guesses whether the engine rejects a record. It saves calls and never changes the result. None: no
            guess.
    """
    refused = find_rejected(records, accepts, looks_bad)
    bad = {record.line for record in [*refused, *(record for record in records if record.is_too_long)]}
    good = [record for record in records if record.line not in bad]
    return good, [record for record in records if record.line in bad]


def chunks(records: Iterable[RawRecord]) -> Iterator[list[RawRecord]]:
    """Group records into chunks for the engine, in order."""
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
