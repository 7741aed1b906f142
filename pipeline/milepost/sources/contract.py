"""Types that sources and their readers share: objects, parts, bad records, readers.

A source is a set of objects that can be listed, planned and read again. It records which object versions it consumed,
and an epoch's plan names objects with their expected versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from milepost.protocol.records import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

MAX_VALUE_CHARS = 80
"""A bad value is cut to this many characters: enough to find it, too few to leak the data."""

MAX_RAW_BYTES = 1024
"""A dead letter contains at most this many bytes of the bad record."""

PARTITION = "__partition"
"""Column that a reader adds to rows of a partitioned external system: the name of their partition. It is removed
before any operator sees the rows. Declared columns cannot have this name."""

TOMBSTONES = b"milepost.tombstones"
"""Key in the schema metadata of a batch: number of messages without a value that were read with it and have no row."""

_NO_TEXT = re.compile("[\ud800-\udfff]")


def printable(text: str) -> str:
    """Replace every unpaired surrogate, which stands for an undecodable byte, with U+FFFD."""
    return _NO_TEXT.sub("\ufffd", text)


@dataclass(frozen=True, slots=True)
class SourceObject:
    """One object version to consume. Reading any version other than `etag` is refused.

    Attributes:
        key: relative to the source's store root.
        planned_ms: time of the trigger that first planned it, by the job store's clock. A replay does not change it.
            None: not planned yet.
    """

    stored_as_row: ClassVar[bool] = True

    key: str
    etag: str
    size: int
    last_modified_ms: int
    planned_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ObjectPart:
    """The records of one object that begin in a byte range. Adjacent parts share no record and skip none.

    `ParquetReader` defines where a row of a Parquet file begins.

    Attributes:
        start, stop: half-open range of the stored (compressed) bytes.
    """

    object: SourceObject
    start: int
    stop: int

    @property
    def is_whole(self) -> bool:
        """Whether the part covers the whole object."""
        return self.start == 0 and self.stop == self.object.size

    @property
    def size(self) -> int:
        """Length of the range in bytes."""
        return self.stop - self.start


def whole_object(obj: SourceObject) -> ObjectPart:
    """Return the part that covers a whole object."""
    return ObjectPart(obj, 0, obj.size)


class BadRecord(Exception):
    """One record that cannot be read. It can be pickled.

    Bad input is reported as data: it must never end a worker.

    Attributes:
        key: key of the object.
        line: 1-based line in the decompressed object (a CSV header is line 1), or None.
        column, value: the bad column and its value, cut to `MAX_VALUE_CHARS`, or None.
        clause: the reason, without any text of the record.
        engine_message: what the parser reported. It may quote the record.
        row: 1-based row of a Parquet object.
        reason: clause, engine message and row as one text.
        raw: the first bytes of the record as stored; None if it has no bytes of its own.
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
        reason, engine_message = printable(reason), printable(engine_message)
        location = key + (f", line {line}" if line is not None else "") + (f", column {column}" if column else "")
        self.key, self.line, self.column, self.value, self.clause = key, line, column, cut, reason
        self.engine_message, self.row, self.raw = engine_message, row, raw
        self.reason = (
            reason + (f" ({engine_message})" if engine_message else "") + (f" (row {row:,})" if row is not None else "")
        )
        super().__init__(f"{location}: " + (f"{cut!r} " if cut is not None else "") + self.reason)

    @property
    def location(self) -> tuple[str, int | None]:
        """The object's key, and the line or row in it."""
        return self.key, self.line if self.row is None else self.row

    def __reduce__(self) -> tuple[Any, ...]:
        keywords: dict[str, Any] = {"engine_message": self.engine_message, "row": self.row, "raw": self.raw}
        return partial(type(self), **keywords), (self.key, self.line, self.column, self.value, self.clause)


class BadMessage(BadRecord):
    """One landed message that cannot be decoded.

    Attributes:
        topic, partition, offset: of the message.
    """

    def __init__(
        self,
        key: str,
        line: int | None,
        column: str | None,
        value: str | None,
        reason: str,
        *,
        topic: str,
        partition: int,
        offset: int,
        engine_message: str = "",
        row: int | None = None,
        raw: bytes | None = None,
    ) -> None:
        super().__init__(key, line, column, value, reason, engine_message=engine_message, row=row, raw=raw)
        self.topic, self.partition, self.offset = topic, partition, offset

    @property
    def place(self) -> dict[str, Any]:
        """The columns of a dead letter that identify the message."""
        return {"topic": self.topic, "partition": self.partition, "offset": self.offset}

    @property
    def location(self) -> tuple[str, int | None]:
        return f"topic {self.topic}, partition {self.partition}, offset {self.offset}", None

    def __reduce__(self) -> tuple[Any, ...]:
        make, args = super().__reduce__()
        return partial(make, **self.place), args


class BadObject(BadRecord):
    """An object that cannot be read at all, or that has no recognizable record boundaries after some point."""


class EndingMessage(BadMessage, BadObject):
    """A landed message after which no row may be read, such as a TRUNCATE. It never becomes a dead letter."""


class PartReader(Protocol):
    """Reads parts of objects of one format, as record batches with the declared schema."""

    schema: pa.Schema

    def read_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part in order. The rows of all parts, in part order, are those of the object.

        If the object has bad records, any part may raise the first one of the object.

        Raises: BadRecord; CommitConflict when the object's version differs; NotFound when it was deleted.
        """


class ObjectReader(PartReader, Protocol):
    """Reads parts of objects, and can also salvage the good records of a bad object."""

    def salvage_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch | BadRecord]:
        """Yield the readable rows of a part in order, and a BadRecord for each other record.

        This is the slow path. The result depends on the bytes of the object only. A caller must discard everything
        yielded if a later record, or another part, raises BadObject.

        Raises: BadObject; CommitConflict and NotFound as `read_part`.
        """


@runtime_checkable
class LineReader(Protocol):
    """Finds records of text by their lines."""

    def record_lines(self, store: ObjectStore, obj: SourceObject) -> Iterator[int]:
        """Yield the line at which each record of an object begins, from 1, in order, bad records included.

        Raises: BadObject; CommitConflict and NotFound as `read_part`.
        """
