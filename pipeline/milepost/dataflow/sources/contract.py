"""A source is a set of objects that can be listed, planned and read again.

A source remembers which object versions it consumed; an epoch's plan names objects and their expected versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from milepost.protocol.records.object_store import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

MAX_VALUE = 80
"""Characters of a bad value that are kept: enough to find it, not a copy of somebody's data."""


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


class BadRecord(Exception):
    """One record that cannot be read: bad input, reported as data, never a dead worker. It may be pickled.

    Attributes:
        key: object. line: 1-based line in the decompressed object (a CSV header is line 1), or None. column, value:
        what was wrong, or None (value cut to 80 characters). reason: one clause.
    """

    def __init__(self, key: str, line: int | None, column: str | None, value: str | None, reason: str) -> None:
        cut = value if value is None or len(value) <= MAX_VALUE else value[: MAX_VALUE - 1] + "…"
        cut = cut if cut is None else printable(cut)
        place = key + (f", line {line}" if line is not None else "") + (f", column {column}" if column else "")
        super().__init__(f"{place}: " + (f"{cut!r} " if cut is not None else "") + reason)
        self.key, self.line, self.column, self.value, self.reason = key, line, column, cut, reason

    def __reduce__(self) -> tuple[type[BadRecord], tuple[str, int | None, str | None, str | None, str]]:
        return BadRecord, (self.key, self.line, self.column, self.value, self.reason)


class SourceReader(Protocol):
    """Reads objects of one format as record batches with the declared schema."""

    schema: pa.Schema

    def read(self, store: ObjectStore, obj: SourceObject) -> Iterator[pa.RecordBatch]:
        """Yield the object's rows in order.

        Raises: BadRecord; CommitConflict when the object's version differs; NotFound when it is gone.
        """
