"""The content of a file in CSV, given to pyarrow's reader a few blocks ahead of the rows that were taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Condition, Lock
from typing import IO

import pyarrow as pa

BLOCKS_AHEAD = 4
"""So many blocks are read whose rows were not taken yet."""

PATIENCE_S = 1.0
"""Who waits for rows waits so long for those of the blocks that are read, then one more is."""


class CsvContent:
    """A file from its beginning, for pyarrow, whose reader asks ahead in a thread of its own, for up to 32 blocks.

    That thread is kept waiting, but not for good while its reader is asked for rows: they may lie behind blocks that
    have none, and a reader that has failed waits for the end of the thread.

    Attributes:
        quotes: in what was read of it.
    """

    closed = False

    def __init__(self, body: IO[bytes]) -> None:
        body.seek(0)
        self.quotes = 0
        self._body, self._lock, self._ended = body, Lock(), False
        self._turn, self._ahead, self._is_asked = Condition(), 0, True

    def read(self, size: int = -1) -> bytes:
        self._wait_for_turn()
        with self._lock:
            piece = b"" if self._ended else self._body.read(size)
            self.quotes += piece.count(b'"')
        with self._turn:
            self._ahead += bool(piece)
        return piece

    def end(self) -> None:
        """Leave the file to who reads it next: what is asked from now on gets nothing of it."""
        with self._lock:
            self._ended = True
        with self._turn:
            self._turn.notify_all()

    def rows(self, reader: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield the rows that the reader makes of it. Raises ArrowInvalid: at its end it is within a quoted value."""
        batches = iter(reader)
        while (batch := self._next(batches)) is not None:
            yield pa.Table.from_batches([batch])
        if self.quotes % 2:
            raise pa.ArrowInvalid("it has an odd number of quotes, as one that was cut off within a quoted value has")

    def _next(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        with self._turn:
            self._is_asked = True
            self._turn.notify_all()
        batch = next(batches, None)
        with self._turn:
            self._is_asked = False
            self._ahead -= 1
            self._turn.notify_all()
        return batch

    def _wait_for_turn(self) -> None:
        with self._turn:
            while self._ahead >= BLOCKS_AHEAD and not self._ended:
                notified = self._turn.wait(PATIENCE_S if self._is_asked else None)
                if not notified and self._is_asked:
                    return
