"""Write the rows of a landing as Parquet objects, before any record names them (L2).

Objects are encoded by two threads, while the source reads on. They are stored by the caller's thread, in order.
"""

from __future__ import annotations

import hashlib
import io
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.protocol.landed import LandedObject
from milepost.protocol.records import ObjectStore, landed_objects_folder, landed_objects_prefix

OBJECT_BYTES = 64 << 20
"""An object is closed once its rows have this many bytes in memory. Stored they have less."""

_GROUP_ROWS, _GROUP_BYTES = 100_000, 16 << 20
"""A row group is closed once it has this many rows, or bytes in memory."""

_THREADS = 2
_WAITING_OBJECTS = 3
"""So many objects may be encoded, or wait to be stored, while the source reads on."""


@dataclass(frozen=True, slots=True)
class _Encoded:
    content: bytes
    sha256: str
    rows: int


class ObjectWriter:
    """Writes the objects of one record, below a folder that no other landing uses. A context manager.

    The schema metadata of batches becomes the metadata of their object: of one key, they have one value.

    Args:
        store: rooted at the job. sequence, write_id: of the record that will name the objects.
    """

    def __init__(self, store: ObjectStore, source: str, sequence: int, write_id: str) -> None:
        self._store, self._prefix = store, landed_objects_prefix(source)
        self._folder = landed_objects_folder(sequence, write_id)
        self._pool = ThreadPoolExecutor(_THREADS, "landed-objects")
        self._waiting = deque[tuple[str, Future[_Encoded]]]()
        self._objects: list[LandedObject] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def write(self, split: int, batches: Iterator[pa.RecordBatch]) -> None:
        """Write the rows of one split. Objects are named by split and number."""
        for number, groups in enumerate(_objects(_row_groups(batches))):
            key = f"{self._folder}{split:05d}-{number:05d}.parquet"
            self._waiting.append((key, self._pool.submit(_encode, groups)))
            while len(self._waiting) > _WAITING_OBJECTS:
                self._store_oldest()

    def finish(self) -> list[LandedObject]:
        """Return all objects once they are stored, in the order of their rows."""
        while self._waiting:
            self._store_oldest()
        return self._objects

    def _store_oldest(self) -> None:
        key, future = self._waiting.popleft()
        encoded = future.result()
        self._store.put(self._prefix + key, encoded.content)
        self._objects.append(LandedObject(key, len(encoded.content), encoded.sha256, encoded.rows))


def _encode(groups: list[pa.Table]) -> _Encoded:
    body = io.BytesIO()
    metadata: dict[bytes, bytes] = {}
    with pq.ParquetWriter(body, groups[0].schema.remove_metadata(), compression="zstd") as writer:
        for group in groups:
            metadata |= group.schema.metadata or {}
            writer.write_table(group.replace_schema_metadata(None), row_group_size=group.num_rows)
        if metadata:
            writer.add_key_value_metadata(metadata)
    content = body.getvalue()
    return _Encoded(content, hashlib.sha256(content).hexdigest(), sum(group.num_rows for group in groups))


def _objects(groups: Iterator[pa.Table]) -> Iterator[list[pa.Table]]:
    """Yield the row groups of each object."""
    waiting, size = list[pa.Table](), 0
    for group in groups:
        waiting.append(group)
        size += group.nbytes
        if size >= OBJECT_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def _row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of many small batches as few tables, in order. Batches of 3, 0 and 4 rows are one table of 7.

    A table has the schema metadata of all its batches.
    """
    waiting: list[pa.RecordBatch] = []
    metadata: dict[bytes, bytes] = {}
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        metadata |= batch.schema.metadata or {}
        waiting.append(batch.replace_schema_metadata(None))
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting).replace_schema_metadata(metadata)
            waiting, metadata, rows, size = [], {}, 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting).replace_schema_metadata(metadata)
