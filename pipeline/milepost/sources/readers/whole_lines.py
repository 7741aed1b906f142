"""Whole lines of a text are what a parser gets at a time, so that they can be counted and told from others."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pyarrow as pa

_NEWLINE = 10


class WholeLines(io.RawIOBase):
    """Hands on whole lines; pyarrow takes it as a file.

    Attributes:
        is_blank: nothing but blank lines was met.
    """

    def __init__(self, content: io.RawIOBase | io.BytesIO, begun: bytes = b"") -> None:
        super().__init__()
        self.is_blank = True
        self._content = content
        self._begun = begun

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        """Fill `target` with lines, as far as content is at hand; 0 only at the end.

        Raises:
            ArrowInvalid: a line is longer than `target`, or cannot be taken.
        """
        while True:
            room = len(target) - len(self._begun)
            if room <= 0:
                self.is_blank = False
                raise pa.ArrowInvalid("a line is longer than a block")
            chunk = self._content.read(room) or b""
            text = self._begun + chunk
            end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 if chunk else len(text)
            lines, self._begun = text[:end], text[end:]
            if lines or not chunk:
                lines = self._taken(lines)
                target[: len(lines)] = lines
                return len(lines)

    def _taken(self, lines: bytes) -> bytes:
        """Return the lines as they are handed on. Raises ArrowInvalid: one cannot be."""
        raise NotImplementedError


class RecordLines(WholeLines):
    """Counts lines that each are to be one record. Where a parser finds fewer records, one goes over several lines.

    A parser that gets blocks takes a record as ended where its block ends, be it within quotes or not: so the last line
    of each is looked at. No record has less than a line, so as many of them as lines are one on each.

    Attributes:
        count: lines handed on, empty ones not counted.

    Args:
        is_closed: whether a line, without its end, leaves no quote open.
    """

    def __init__(self, content: io.RawIOBase | io.BytesIO, is_closed: Callable[[bytes], bool]) -> None:
        # No byte order mark is one where a text does not begin, and pyarrow passes over empty lines.
        super().__init__(content, begun=b"\n")
        self.count = 0
        self._is_closed = is_closed

    def _taken(self, lines: bytes) -> bytes:
        if count := _not_empty(lines):
            self.is_blank = False
            self.count += count
            text = lines.rstrip(b"\r\n")
            if not self._is_closed(text[max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 :]):
                raise pa.ArrowInvalid("a line leaves a quote open")
        return lines


def _not_empty(lines: bytes) -> int:
    if b"\r" in lines:
        return sum(1 for line in lines.splitlines() if line)
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == _NEWLINE)  # several times as fast as a search for two bytes
    empty = int(np.count_nonzero(np.diff(ends, prepend=-1) == 1))
    return len(ends) - empty + (bool(lines) and not lines.endswith(b"\n"))
