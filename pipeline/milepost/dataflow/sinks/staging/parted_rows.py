"""Rows that are being told apart by the bucket they belong to; those that are too many wait on the disk.

The file has no name: it is gone with the task, however that ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO

import pyarrow as pa

from milepost.dataflow.sinks.files.deletes import alike
from milepost.dataflow.sinks.files.table_files import on_the_disk
from milepost.dataflow.sinks.staging.table_buckets import Ints, split_by_bucket


class PartedRows:
    """The rows of each part, in the order in which they came.

    Args:
        sink: for messages. parts: key groups of each. held_bytes: so many bytes of rows are held at most.

    Attributes:
        rows: how many there are.
    """

    def __init__(self, sink: str, parts: Sequence[range], held_bytes: int, scratch: IO[bytes]) -> None:
        self.rows = 0
        self._sink, self._parts, self._held_bytes, self._scratch = sink, parts, held_bytes, scratch
        self._held: list[list[pa.Table]] = [[] for _ in parts]
        self._spilled: list[list[tuple[int, int]]] = [[] for _ in parts]
        self._bytes = [0] * len(parts)
        self._waiting_bytes = self._end = 0

    def add(self, rows: pa.Table, groups: Ints) -> None:
        """Add rows of these key groups. Raises EnvironmentUnusable: the disk does not take what is held no more."""
        for at, part in enumerate(split_by_bucket(rows, groups, self._parts)):
            if part.num_rows:
                self._held[at].append(part)
                self._bytes[at] += part.nbytes
        self.rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes > self._held_bytes:
            self._spill()

    def of(self, at: int) -> list[pa.Table]:
        """Return the rows of one part; may be called by several threads once all are there."""
        return [*map(self._read, self._spilled[at]), *self._held[at]]

    def bytes_of(self, at: int) -> int:
        """Return about how many bytes the rows of one part have in memory."""
        return self._bytes[at]

    def _spill(self) -> None:
        with on_the_disk(self._sink):
            for at, held in enumerate(self._held):
                if not held:
                    continue
                rows, sink = pa.concat_tables(alike(held)), pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, rows.schema) as writer:
                    writer.write_table(rows)
                body = sink.getvalue()
                self._scratch.write(body)
                self._spilled[at].append((self._end, body.size))
                self._end += body.size
                held.clear()
            self._scratch.flush()
        self._waiting_bytes = 0

    def _read(self, place: tuple[int, int]) -> pa.Table:
        offset, size = place
        with pa.ipc.open_stream(os.pread(self._scratch.fileno(), size, offset)) as reader:
            return reader.read_all()


@contextmanager
def parted_rows(sink: str, parts: Sequence[range], held_bytes: int) -> Iterator[PartedRows]:
    """Open rows without any; args as of `PartedRows`. Raises EnvironmentUnusable: there is no place for them."""
    with ExitStack() as opened:
        with on_the_disk(sink):
            scratch = opened.enter_context(tempfile.TemporaryFile())
        yield PartedRows(sink, parts, held_bytes, scratch)
