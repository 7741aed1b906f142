"""Write the rows of a landing as Parquet objects, before any record names them (L2)."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.protocol.landed import LandedObject
from milepost.protocol.records import ObjectStore, landed_objects_folder, landed_objects_prefix

OBJECT_BYTES = 64 << 20
"""An object is closed once it has this many bytes."""

_GROUP_ROWS, _GROUP_BYTES = 100_000, 16 << 20
"""A row group is written once it has this many rows, or bytes in memory."""


class ObjectWriter:
    """Writes the objects of one record, below a folder that no other landing uses.

    Args:
        store: rooted at the job. sequence, write_id: of the record that will name the objects.
    """

    def __init__(self, store: ObjectStore, source: str, sequence: int, write_id: str) -> None:
        self._store, self._prefix = store, landed_objects_prefix(source)
        self._folder = landed_objects_folder(sequence, write_id)
        self.objects: list[LandedObject] = []

    def write(self, split: int, batches: Iterator[pa.RecordBatch]) -> None:
        """Write the rows of one split. Objects are named by split and number, and listed in the order of their rows."""
        number = rows = 0
        body, writer = io.BytesIO(), None
        for group in _row_groups(batches):
            if writer is None:
                writer = pq.ParquetWriter(body, group.schema, compression="zstd")
            writer.write_table(group, row_group_size=group.num_rows)
            rows += group.num_rows
            if body.tell() >= OBJECT_BYTES:
                writer.close()
                self._put(split, number, body, rows)
                number, rows, body, writer = number + 1, 0, io.BytesIO(), None
        if writer is not None:
            writer.close()
            self._put(split, number, body, rows)

    def _put(self, split: int, number: int, body: io.BytesIO, rows: int) -> None:
        content = body.getvalue()
        key = f"{self._folder}{split:05d}-{number:05d}.parquet"
        self._store.put(self._prefix + key, content)
        self.objects.append(LandedObject(key, len(content), hashlib.sha256(content).hexdigest(), rows))


def _row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of many small batches as few tables, in order. Batches of 3, 0 and 4 rows are one table of 7."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)
