"""Write the rows of a landing as Parquet objects, before any record names them (L2).

One thread encodes while the source continues to read; the caller's thread stores. A split may have parts that are read
concurrently, such as the partitions of a topic. A part with many rows has objects of its own, and adjacent small ones
share an object. Example: parts 0 and 2 have a million rows each, parts 1, 3 and 4 a thousand. Then the objects are
those of part 0, one of part 1, those of part 2, and one of parts 3 and 4.
"""

from __future__ import annotations

import hashlib
import io
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.protocol.landed import LandedObject
from milepost.protocol.records import ObjectStore, landed_objects_folder, landed_objects_prefix

OBJECT_BYTES = 64 << 20
"""An object is closed once its rows have this many bytes in memory. The stored object is smaller."""

_GROUP_ROWS, _GROUP_BYTES = 100_000, 16 << 20
"""A row group is closed once it has this many rows, or bytes in memory."""

_WAITING_OBJECTS, _WAITING_GROUPS = 2, 8
"""Maximum number of closed objects that wait to be stored, and of row groups that wait to be encoded."""


@dataclass
class _Rows:
    """Rows that wait to become a row group, and the schema metadata of all their batches."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    metadata: dict[bytes, bytes] = field(default_factory=dict)
    rows: int = 0
    size: int = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Add rows. Returns whether there are enough for a row group."""
        self.metadata |= batch.schema.metadata or {}
        self.batches.append(batch.replace_schema_metadata(None))
        self.rows, self.size = self.rows + batch.num_rows, self.size + batch.nbytes
        return self.rows >= _GROUP_ROWS or self.size >= _GROUP_BYTES

    def join(self, other: _Rows) -> bool:
        """Add the rows of another part. Returns whether there are enough for a row group."""
        self.batches += other.batches
        self.metadata |= other.metadata
        self.rows, self.size = self.rows + other.rows, self.size + other.size
        return self.rows >= _GROUP_ROWS or self.size >= _GROUP_BYTES

    def take(self) -> pa.Table:
        """Return the rows, and remove them."""
        table = pa.Table.from_batches(self.batches).replace_schema_metadata(self.metadata)
        self.batches, self.metadata, self.rows, self.size = [], {}, 0, 0
        return table


class _Body:
    """An object that is being encoded, by one thread."""

    def __init__(self) -> None:
        self._content = io.BytesIO()
        self._writer: pq.ParquetWriter | None = None
        self._metadata: dict[bytes, bytes] = {}
        self._rows = 0
        self._failure: BaseException | None = None

    def append(self, group: pa.Table) -> None:
        """Encode a row group. A failure is raised by `close`."""
        if self._failure is not None:
            return
        try:
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._content, group.schema.remove_metadata(), compression="zstd")
            self._writer.write_table(group.replace_schema_metadata(None), row_group_size=group.num_rows)
        except BaseException as error:  # noqa: BLE001 - raised where the caller waits
            self._failure = error
        self._metadata |= group.schema.metadata or {}
        self._rows += group.num_rows

    def close(self) -> tuple[bytes, str, int]:
        """Return the content, its SHA-256, and the number of rows."""
        if self._failure is not None:
            raise self._failure
        assert self._writer is not None, "an object has rows"
        if self._metadata:
            self._writer.add_key_value_metadata(self._metadata)
        self._writer.close()
        content = self._content.getvalue()
        return content, hashlib.sha256(content).hexdigest(), self._rows


@dataclass
class _Part:
    """The rows of one part, and its open object.

    Attributes:
        size: of the rows of the open object, in memory. closed: number of its closed objects.
    """

    waiting: _Rows = field(default_factory=_Rows)
    body: _Body | None = None
    size: int = 0
    closed: int = 0


class ObjectWriter:
    """Writes the objects of one record to a folder that no other landing uses. A context manager.

    Args:
        store: rooted at the job. log: name under which the log is stored.
        sequence, write_id: of the record that will name the objects.
    """

    def __init__(self, store: ObjectStore, log: str, sequence: int, write_id: str) -> None:
        self._store, self._prefix = store, landed_objects_prefix(log)
        self._folder = landed_objects_folder(sequence, write_id)
        self._encoder = ThreadPoolExecutor(1, "landed-objects")  # one thread: row groups of an object keep their order
        self._appended = deque[Future[None]]()
        self._closed = deque[tuple[str, Future[tuple[bytes, str, int]]]]()
        self._objects: list[LandedObject] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._encoder.shutdown(cancel_futures=True)

    def write(self, split: int, batches: Iterator[tuple[int, pa.RecordBatch]]) -> None:
        """Write the rows of one split, each batch with the number of its part."""
        parts: dict[int, _Part] = {}
        for number, batch in batches:
            if not batch.num_rows:
                continue
            part = parts.setdefault(number, _Part())
            if part.waiting.add(batch):
                self._append(split, number, part)
        small, first = _Part(), 0
        for number, part in sorted(parts.items()):
            if part.body is None and not part.closed:
                first = number if not small.waiting.rows and small.body is None else first
                if small.waiting.join(part.waiting):
                    self._append(split, first, small)
                continue
            self._close(split, first, small)
            self._close(split, number, part)
            small = _Part()
        self._close(split, first, small)

    def finish(self) -> list[LandedObject]:
        """Return all objects once they are stored, in the order of their rows."""
        while self._closed:
            self._store_oldest()
        return sorted(self._objects, key=lambda item: item.key)

    def _append(self, split: int, number: int, part: _Part) -> None:
        """Encode the waiting rows as a row group, and close the object if it is large enough."""
        part.body = part.body or _Body()
        part.size += part.waiting.size
        self._appended.append(self._encoder.submit(part.body.append, part.waiting.take()))
        while len(self._appended) > _WAITING_GROUPS:
            self._appended.popleft().result()
        if part.size >= OBJECT_BYTES:
            self._close(split, number, part)

    def _close(self, split: int, number: int, part: _Part) -> None:
        """Close the object of a part, with its waiting rows. Does nothing if it has neither."""
        if part.waiting.rows:
            part.body = part.body or _Body()
            self._encoder.submit(part.body.append, part.waiting.take())
        if part.body is None:
            return
        key = f"{self._folder}{split:05d}-{number:05d}{part.closed:05d}.parquet"
        self._closed.append((key, self._encoder.submit(part.body.close)))
        part.body, part.size, part.closed = None, 0, part.closed + 1
        while len(self._closed) > _WAITING_OBJECTS:
            self._store_oldest()

    def _store_oldest(self) -> None:
        key, encoded = self._closed.popleft()
        content, sha256, rows = encoded.result()
        self._store.put(self._prefix + key, content)
        self._objects.append(LandedObject(key, len(content), sha256, rows))
