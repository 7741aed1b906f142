"""Rows in memory up to a limit, and in an unnamed file beyond it, which disappears with the process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator

import pyarrow as pa

from milepost.state.buffers.spill import Spilled, SpillFile
from milepost.storage.scratch_disk import on_scratch_disk

HELD_BYTES = 32 << 20
"""Of rows that are held in memory."""

ORDER_BYTES = 32
"""Beside each row that is put in order: its key as a word, sorted, and its place before."""

_PIECE_BYTES = 256 << 10
"""Of rows on the disk that are read at once."""

Places = list[Spilled]
"""Where some rows wait, in their order."""

_ROWS = "rows that are too many to be held in memory"


class SpilledRows:
    """Rows of one schema in their order, to be read any number of times.

    Attributes:
        num_rows: how many were given. num_kept: those within the limit; others are counted, and not kept.
    """

    def __init__(self, schema: pa.Schema, tables: Iterable[pa.Table] = (), limit: int | None = None) -> None:
        """Keep rows. Raises what `tables` raises. EnvironmentUnusable: the disk does not take them."""
        self.schema = schema
        self.num_rows = self.num_kept = 0
        self._held: list[pa.Table] = []
        self._places: Places = []
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
                self._places += spill.keep(self._held)
                self._held, size = [], 0

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield what was kept, piece by piece."""
        yield from pieces_at(self._places)
        yield from self._held

    def head(self, limit: int | None) -> Iterator[pa.Table]:
        """Yield the first so many of the rows that were kept; None: all."""
        left = limit
        for rows in self:
            if left is not None and left <= 0:
                return
            yield rows if left is None else rows.slice(0, left)
            left = None if left is None else left - rows.num_rows

    def table(self) -> pa.Table:
        """Return what was kept, all in memory."""
        return pa.concat_tables([self.schema.empty_table(), *self])


class RowSpill:
    """Rows that wait on the disk, in pieces."""

    def __init__(self) -> None:
        self._file = SpillFile(tempfile.gettempdir(), lambda what: on_scratch_disk(f"{what} {_ROWS}"))

    def keep(self, tables: Iterable[pa.Table]) -> Places:
        """Write the rows of tables, in pieces. Raises EnvironmentUnusable."""
        places = []
        for table in tables:
            size = table.nbytes + table.num_rows * ORDER_BYTES
            rows = max(1, table.num_rows * _PIECE_BYTES // max(1, size))
            places += [self._append(table.slice(start, rows)) for start in range(0, table.num_rows, rows)]
        return places

    def _append(self, rows: pa.Table) -> Spilled:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
            stream.write_table(rows)
        return self._file.append(sink.getvalue())


def pieces_at(places: Places) -> Iterator[pa.Table]:
    """Yield the rows at some places, one after another. Raises EnvironmentUnusable."""
    return (pa.ipc.open_stream(place.read()).read_all() for place in places)
