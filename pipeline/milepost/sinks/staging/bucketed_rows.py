"""Rows that are being told apart by the bucket they belong to; those that are too many wait on the disk."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from milepost.sinks.files.deletes import alike
from milepost.sinks.staging.table_buckets import Ints, split_by_bucket
from milepost.spill.spilled_rows import Pieces, RowSpill, read_pieces


class BucketedRows:
    """The rows of each part, in the order in which they came.

    Args:
        parts: key groups of each. held_bytes: so many bytes of rows are held at most.

    Attributes:
        rows: how many there are.
    """

    def __init__(self, parts: Sequence[range], held_bytes: int) -> None:
        self.rows = 0
        self._parts, self._held_bytes, self._spill = parts, held_bytes, RowSpill()
        self._held: list[list[pa.Table]] = [[] for _ in parts]
        self._waiting: list[Pieces] = [[] for _ in parts]
        self._bytes = [0] * len(parts)
        self._bytes_held = 0

    def add(self, rows: pa.Table, groups: Ints) -> None:
        """Add rows of these key groups. Raises EnvironmentUnusable: the disk does not take what is held no more."""
        for at, part in enumerate(split_by_bucket(rows, groups, self._parts)):
            if part.num_rows:
                self._held[at].append(part)
                self._bytes[at] += part.nbytes
        self.rows += rows.num_rows
        self._bytes_held += rows.nbytes
        if self._bytes_held > self._held_bytes:
            for at, held in enumerate(self._held):
                self._waiting[at] += self._spill.write([pa.concat_tables(alike(held))] if held else ())
                held.clear()
            self._bytes_held = 0

    def of(self, at: int) -> list[pa.Table]:
        """Return the rows of one part; may be called by several threads once all are there."""
        return [*read_pieces(self._waiting[at]), *self._held[at]]

    def bytes_of(self, at: int) -> int:
        """Return about how many bytes the rows of one part have in memory."""
        return self._bytes[at]
