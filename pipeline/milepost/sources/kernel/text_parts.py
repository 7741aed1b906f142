"""Read the whole lines that begin in a byte range of a text.

Each part finds its first line, and the first line of the next part, by the same rule: skip to the first line end at or
after the byte before the range. So adjacent parts share no byte and skip none, wherever the text is cut.
"""

from __future__ import annotations

import io
import re
from typing import BinaryIO

_LINE_END = re.compile(rb"\r\n?|\n")

_CR = 13

_BEYOND = 1 << 14
"""Bytes per read when looking for the end of a part's last line."""


class ForwardFile(io.RawIOBase):
    """Serves the bytes that `_next` produces; pyarrow accepts it as a file."""

    def __init__(self) -> None:
        super().__init__()
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        r"""Fill `target`, apart from a final `\r` and at the end. Raises what `_next` raises.

        pyarrow parses the bytes of each call as one block. It refuses a record that spans three blocks, so no block is
        shorter than it needs to be. After a block that ends with `\r` it drops a `\n` at the start of the next, even in
        a quoted value (apache/arrow#51368), and takes a block of only that `\n` for the end of the file. So a `\r` is
        held back until the byte after it is there.
        """
        size = len(target)
        while len(self._ready) < size and (more := self._next(size - len(self._ready))):
            self._ready += more
        count = min(size, len(self._ready))
        if 1 < count == size and self._ready[count - 1] == _CR:
            count -= 1
        target[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _next(self, size: int) -> bytes:
        """Return the next bytes, about `size` of them; b"" only at the end."""
        raise NotImplementedError


class TextPart(ForwardFile):
    r"""Reads the lines that begin in `[start, stop)`; pyarrow accepts it as a file.

    Of ``ab\ncd\r\nef``, `[0, 4)` is ``ab\ncd\r\n`` and `[4, 7)` is empty, because ``cd`` begins at 3 and ``ef`` at 7.

    Args:
        source: the text from byte `start - 1` on, or from the beginning if `start` is 0.
    """

    def __init__(self, source: BinaryIO, start: int, stop: int) -> None:
        super().__init__()
        self._source, self._stop = source, stop
        self._position = max(start - 1, 0)
        self._pushback = self._pending_cr = b""
        self._ended = start >= stop
        if start and not self._ended:
            self._skip_line()

    def _next(self, size: int) -> bytes:
        """Return the next bytes. Raises what the source raises."""
        if self._ended:
            return b""
        size = min(size, max(self._stop - self._position, _BEYOND))
        first, text = self._position, self._pushback or self._read(size)
        self._pushback = b""
        self._position += len(text)
        if self._position >= self._stop:
            end = _LINE_END.search(text, max(self._stop - 1 - first, 0))
            if end is not None:
                self._ended = True
                return text[: end.end()]
        return text

    def _skip_line(self) -> None:
        """Skip the rest of the line that began before the range. If no line begins in the range, the part is empty."""
        while True:
            text = self._read(1 << 16)
            end = _LINE_END.search(text)
            self._position += len(text) if end is None else end.end()
            if not text or self._position >= self._stop:
                self._ended = True
                return
            if end is not None:
                self._pushback = text[end.end() :]
                return

    def _read(self, size: int) -> bytes:
        r"""Read on. A trailing `\r` is held back until the next byte shows whether it is half of `\r\n`."""
        while True:
            more = self._source.read(size)
            text, self._pending_cr = self._pending_cr + more, b""
            if not more or not text.endswith(b"\r"):
                return text
            text, self._pending_cr = text[:-1], b"\r"
            if text:
                return text
