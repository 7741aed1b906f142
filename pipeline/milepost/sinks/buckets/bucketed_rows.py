"""Divide rows among buckets, and spill them to disk beyond a memory budget."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from milepost.sinks.buckets.table_buckets import Ints, split_by_bucket
from milepost.sinks.parquet_files.deletes import align_deletes
from milepost.spill import Pieces, RowSpill, read_pieces


class BucketedRows:
    """The rows of each part, in the order in which they were added.

    Args:
        parts: key groups of each part. held_bytes: bytes of rows to hold in memory before spilling.

    Attributes:
        rows: number of rows added.
    """

    def __init__(self, parts: Sequence[range], held_bytes: int) -> None:
        self.rows = 0
        self._parts, self._held_bytes, self._spill = parts, held_bytes, RowSpill()
        self._held: list[list[pa.Table]] = [[] for _ in parts]
        self._spilled: list[Pieces] = [[] for _ in parts]
        self._bytes = [0] * len(parts)
        self._bytes_held = 0

    def add(self, rows: pa.Table, groups: Ints) -> None:
        """Add rows with these key groups. Raises EnvironmentUnusable: the rows cannot be spilled to disk."""
        for at, part in enumerate(split_by_bucket(rows, groups, self._parts)):
            if part.num_rows:
                self._held[at].append(part)
                self._bytes[at] += part.nbytes
        self.rows += rows.num_rows
        self._bytes_held += rows.nbytes
        if self._bytes_held > self._held_bytes:
            for at, held in enumerate(self._held):
                self._spilled[at] += self._spill.write([pa.concat_tables(align_deletes(held))] if held else ())
                held.clear()
            self._bytes_held = 0

    def of(self, at: int) -> list[pa.Table]:
        """Return the rows of one part. Thread-safe once all rows are added."""
        return [*read_pieces(self._spilled[at]), *self._held[at]]

    def bytes_of(self, at: int) -> int:
        """Return the approximate size in memory of one part's rows."""
        return self._bytes[at]
