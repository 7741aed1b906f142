"""A source is a set of objects that can be listed, planned and read again.

A source remembers which object versions it consumed; an epoch's plan names objects and their expected versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from milepost.protocol.records.object_store import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

MAX_VALUE_CHARS = 80
"""Characters of a bad value that are kept: enough to find it, not a copy of somebody's data."""

MAX_RAW_BYTES = 1024
"""Bytes of a bad record that a dead letter has."""

_NO_TEXT = re.compile("[\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with a mark in place of what is no text: a byte that could not be decoded, half a surrogate."""
    return _NO_TEXT.sub("\ufffd", text)


@dataclass(frozen=True, slots=True)
class SourceObject:
    """One object version to consume. `etag` is the expected version; reading another version is refused.

    Attributes:
        key: relative to the source's store root.
        planned_ms: the job store's clock when a trigger first planned it; a replay keeps it. None: not planned yet.
    """

    stored_as_row: ClassVar[bool] = True

    key: str
    etag: str
    size: int
    last_modified_ms: int
    planned_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ObjectPart:
    """The records of one object that begin in a range of its bytes; the parts of an object have each of them once.

    Where a record of a Parquet file begins is said in `ParquetReader`.

    Attributes:
        start, stop: half-open, in the bytes that are stored.
    """

    object: SourceObject
    start: int
    stop: int

    @property
    def is_whole(self) -> bool:
        """Whether nobody else reads the object."""
        return self.start == 0 and self.stop == self.object.size

    @property
    def size(self) -> int:
        """Bytes of the range."""
        return self.stop - self.start


def whole_object(obj: SourceObject) -> ObjectPart:
    """Return all of an object."""
    return ObjectPart(obj, 0, obj.size)


class BadRecord(Exception):
    """One record that cannot be read: bad input, reported as data, never a dead worker. It may be pickled.

    Attributes:
        key: object. line: 1-based line in the decompressed object (a CSV header is line 1), or None. column, value:
        what was wrong, or None (value cut to 80 characters). clause: why, without a word of the record. row: 1-based
        row of a Parquet object. reason: the clause, what the engine says besides, which may quote the record, and the
        row. raw: the record as it is in the object, cut; None where it has no bytes of its own.
    """

    def __init__(
        self,
        key: str,
        line: int | None,
        column: str | None,
        value: str | None,
        reason: str,
        *,
        engine_message: str = "",
        row: int | None = None,
        raw: bytes | None = None,
    ) -> None:
        cut = value if value is None or len(value) <= MAX_VALUE_CHARS else value[: MAX_VALUE_CHARS - 1] + "…"
        cut = cut if cut is None else printable(cut)
        place = key + (f", line {line}" if line is not None else "") + (f", column {column}" if column else "")
        self.key, self.line, self.column, self.value, self.clause = key, line, column, cut, reason
        self.engine_message, self.row, self.raw = engine_message, row, raw
        self.reason = (
            reason + (f" ({engine_message})" if engine_message else "") + (f" (row {row:,})" if row is not None else "")
        )
        super().__init__(f"{place}: " + (f"{cut!r} " if cut is not None else "") + self.reason)

    def __reduce__(self) -> tuple[Any, ...]:
        keywords: dict[str, Any] = {"engine_message": self.engine_message, "row": self.row, "raw": self.raw}
        return partial(type(self), **keywords), (self.key, self.line, self.column, self.value, self.clause)


class BadObject(BadRecord):
    """An object that cannot be read at all, or whose records cannot be told apart from some place on."""


class PartReader(Protocol):
    """Reads objects of one format in parts, as record batches with the declared schema."""

    schema: pa.Schema

    def read_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part in order: those of all parts, one after another, are those of the object.

        Of bad records the first of the object may be the one that is raised, by whatever part.

        Raises: BadRecord; CommitConflict when the object's version differs; NotFound when it is gone.
        """


class ObjectReader(PartReader, Protocol):
    """Reads objects in parts, and what of an object can be read."""

    def salvage_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch | BadRecord]:
        """Yield the rows of a part's records that can be read, in order, and each record that cannot; slowly.

        A function of the object's bytes alone. What was yielded counts only once all of it was, of every part.

        Raises: BadObject; CommitConflict and NotFound as `read_part`.
        """
