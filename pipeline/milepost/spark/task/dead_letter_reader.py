"""Read whole objects and separate their bad records from their rows.

A reader yields rows before it meets a bad record, and a later one may make the whole object bad. So an object's rows
are buffered, in memory or on the node's disk, until the object is read completely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from milepost.protocol.records import ObjectStore
from milepost.sources import MAX_NAMED_BAD_RECORDS, BadObject, BadRecord, ObjectPart, ObjectReader, dead_letters
from milepost.spark.wire.arrow_streams import encode_stream
from milepost.spark.worker.task_memory import Memory
from milepost.state.buffers import Spilled, SpillFile

_PENDING_BYTES = 256 << 20
"""Maximum size of an object's rows that are buffered in memory."""

_BAD_BATCH = 1024
"""Maximum number of bad records in one batch."""


@dataclass(frozen=True, slots=True)
class BadRows:
    """Bad records of one object.

    Attributes:
        rows: one row per bad record.
        first: the first bad records, at most `MAX_NAMED_BAD_RECORDS`.
        whole: whether this is the single bad record of an object of which no row can be read.
    """

    rows: pa.RecordBatch
    first: tuple[BadRecord, ...]
    whole: bool = False


Piece: TypeAlias = "pa.RecordBatch | BadRows"


@dataclass(frozen=True, slots=True)
class DeadLetterReader:
    """Read objects, or parts of objects, completely. Picklable.

    Attributes:
        reader: reader of the objects.
        schema: of the bad records.
        bad_objects: whether an unreadable object becomes one bad record. Otherwise it is raised.
        max_records: maximum number of bad records; None: any number.
    """

    reader: ObjectReader
    schema: pa.Schema
    bad_objects: bool
    max_records: int | None

    def read(self, store: ObjectStore, part: ObjectPart, memory: Memory) -> Iterator[Piece]:
        """Yield the part's rows in order and its bad records, of which at most `max_records + 1`.

        Nothing is yielded before the whole part is read, so an error means that no row was yielded.

        Raises:
            BadObject, CommitConflict, NotFound: as the reader.
            EnvironmentUnusable: the node's disk is full.
        """
        with closing(memory.spill.sibling()) as spill:
            pending = _PendingPieces(spill, min(_PENDING_BYTES, memory.budget.held_bytes))
            try:
                try:
                    pending.fill(self.reader.read_part(store, part))
                except BadObject:
                    raise
                except BadRecord:
                    pending.fill(self._pieces(self.reader.salvage_part(store, part)))
            except BadObject as bad:
                if not self.bad_objects:
                    raise
                pending.fill([BadRows(dead_letters([bad], self.schema), (bad,), whole=True)])
            yield from pending

    def _pieces(self, salvaged: Iterator[pa.RecordBatch | BadRecord]) -> Iterator[Piece]:
        count = 0
        bad: list[BadRecord] = []
        for item in salvaged:
            if not isinstance(item, BadRecord):
                if bad:
                    yield self._bad_rows(bad)
                    bad = []
                yield item
                continue
            count += 1
            bad.append(item)
            if self.max_records is not None and count > self.max_records:
                break
            if len(bad) == _BAD_BATCH:
                yield self._bad_rows(bad)
                bad = []
        if bad:
            yield self._bad_rows(bad)

    def _bad_rows(self, bad: list[BadRecord]) -> BadRows:
        return BadRows(dead_letters(bad, self.schema), tuple(bad[:MAX_NAMED_BAD_RECORDS]))


class _PendingPieces:
    """Pieces of one object, buffered until it is read completely."""

    def __init__(self, spill: SpillFile, limit_bytes: int) -> None:
        self._spill, self._limit_bytes = spill, limit_bytes
        self._pieces: list[Piece | Spilled] = []

    def fill(self, pieces: Iterable[Piece]) -> None:
        """Replace the buffered pieces."""
        self._pieces, held = [], 0
        for piece in pieces:
            held += (piece.rows if isinstance(piece, BadRows) else piece).nbytes
            spilled = held > self._limit_bytes and not isinstance(piece, BadRows)
            self._pieces.append(self._spill.append(encode_stream(piece)) if spilled else piece)

    def __iter__(self) -> Iterator[Piece]:
        for piece in self._pieces:
            if isinstance(piece, Spilled):
                yield from pa.ipc.open_stream(piece.read())
            else:
                yield piece
