"""Feed a CSV file to pyarrow's reader, limited to a few blocks ahead of the consumed rows."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from threading import Condition, Lock
from typing import IO

import pyarrow as pa

BLOCKS_AHEAD = 4
"""Maximum number of read blocks with unconsumed rows."""

PATIENCE_S = 1.0
"""How long a consumer waits for rows of the blocks read so far, before one more block is read."""


class CsvContent:
    """A file for pyarrow's reader, which prefetches up to 32 blocks in its own thread.

    The thread is blocked when it is too far ahead. While a consumer waits, it reads one more block from time to time:
    the blocks read so far may have no rows, and a reader that has failed waits for the end of the thread.

    Attributes:
        quotes: number of quotes read so far.
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
            if 1 < len(piece) == size and piece.endswith(b"\r"):
                # pyarrow drops a `\n` that begins the next block, even in a quoted value (apache/arrow#51368).
                self._body.seek(-1, io.SEEK_CUR)
                piece = piece[:-1]
            self.quotes += piece.count(b'"')
        with self._turn:
            self._ahead += bool(piece)
        return piece

    def end(self) -> None:
        """Release the file to its next reader. Later reads return nothing."""
        with self._lock:
            self._ended = True
        with self._turn:
            self._turn.notify_all()

    def rows(self, reader: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield the rows of the reader. Raises ArrowInvalid: the file ends within a quoted value."""
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
