"""Rows in memory up to a limit, and in an unnamed file beyond it, which disappears with the process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator

import pyarrow as pa

from milepost.state.buffers import Spilled, SpillFile
from milepost.storage import on_scratch_disk

HELD_BYTES = 32 << 20
"""Size of rows held in memory before they are spilled."""

ORDER_BYTES = 32
"""Extra memory per row while it is sorted: its normalized key and its original index."""

_PIECE_BYTES = 256 << 10
"""Size of one piece on disk, the unit of a read."""

Pieces = list[Spilled]
"""Locations of spilled rows, in row order."""

_ROWS = "rows that are too many to be held in memory"


class SpilledRows:
    """Rows of one schema, in order, readable any number of times.

    Attributes:
        num_rows: number of rows received.
        num_kept: number of rows stored. Rows beyond the limit are only counted.
    """

    def __init__(self, schema: pa.Schema, tables: Iterable[pa.Table] = (), limit: int | None = None) -> None:
        """Store the rows of tables.

        Raises:
            EnvironmentUnusable: the scratch disk cannot store them. Errors of `tables` pass through.
        """
        self.schema = schema
        self.num_rows = self.num_kept = 0
        self._held: list[pa.Table] = []
        self._pieces: Pieces = []
        size, spill = 0, RowSpill()
        for rows in tables:
            kept = rows if limit is None else rows.slice(0, limit - self.num_kept)
            self.num_rows += rows.num_rows
            del rows
            if not kept.num_rows:
                continue
            self.num_kept += kept.num_rows
            self._held.append(kept)
            size += kept.nbytes
            if size > HELD_BYTES:
                self._pieces += spill.write(self._held)
                self._held, size = [], 0

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the stored rows, piece by piece."""
        yield from read_pieces(self._pieces)
        yield from self._held

    def head(self, limit: int | None) -> Iterator[pa.Table]:
        """Yield the first `limit` stored rows; None: all of them."""
        remaining = limit
        for rows in self:
            if remaining is not None and remaining <= 0:
                return
            yield rows if remaining is None else rows.slice(0, remaining)
            remaining = None if remaining is None else remaining - rows.num_rows

    def table(self) -> pa.Table:
        """Return all stored rows in memory."""
        return pa.concat_tables([self.schema.empty_table(), *self])


class RowSpill:
    """Writes rows to the scratch disk, in pieces."""

    def __init__(self) -> None:
        self._file = SpillFile(tempfile.gettempdir(), lambda what: on_scratch_disk(f"{what} {_ROWS}"))

    def write(self, tables: Iterable[pa.Table]) -> Pieces:
        """Write the rows of tables; return their locations. Raises EnvironmentUnusable."""
        pieces = []
        for table in tables:
            size = table.nbytes + table.num_rows * ORDER_BYTES
            rows = max(1, table.num_rows * _PIECE_BYTES // max(1, size))
            pieces += [self._append(table.slice(start, rows)) for start in range(0, table.num_rows, rows)]
        return pieces

    def _append(self, rows: pa.Table) -> Spilled:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
            stream.write_table(rows)
        return self._file.append(sink.getvalue())


def read_pieces(pieces: Pieces) -> Iterator[pa.Table]:
    """Yield the rows of the given pieces, in order. Raises EnvironmentUnusable."""
    return (pa.ipc.open_stream(piece.read()).read_all() for piece in pieces)
