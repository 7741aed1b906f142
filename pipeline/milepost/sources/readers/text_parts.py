"""A part of a text is the lines that begin in a range of its bytes, whole.

Each part finds by itself where its lines begin, and where those of the next part do: by the same look at the bytes from
one before the range on. So the parts of a text have each of its bytes once, wherever it is cut.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from milepost.sources.readers.forward_file import ForwardFile

_LINE_END = re.compile(rb"\r\n?|\n")

_BEYOND = 1 << 14
"""So many bytes are read at a time where the last line of a part ends."""


class TextPart(ForwardFile):
    r"""Reads the lines that begin in `[start, stop)`; pyarrow takes it as a file.

    Of ``ab\ncd\r\nef``, `[0, 4)` has ``ab\ncd\r\n``, `[4, 7)` has nothing, for ``cd`` begins at 3 and ``ef`` at 7.

    Args:
        source: the text from the byte before `start` on; from its beginning where `start` is 0.
    """

    def __init__(self, source: BinaryIO, start: int, stop: int) -> None:
        super().__init__()
        self._source, self._stop = source, stop
        self._position = max(start - 1, 0)
        self._begun = self._waiting = b""
        self._ended = start >= stop
        if start and not self._ended:
            self._skip_line()

    def _next(self, wanted: int) -> bytes:
        """Return what follows. Raises what the source raises."""
        if self._ended:
            return b""
        wanted = min(wanted, max(self._stop - self._position, _BEYOND))
        first, text = self._position, self._begun or self._read(wanted)
        self._begun = b""
        self._position += len(text)
        if self._position >= self._stop:
            end = _LINE_END.search(text, max(self._stop - 1 - first, 0))
            if end is not None:
                self._ended = True
                return text[: end.end()]
        return text

    def _skip_line(self) -> None:
        """Pass over the rest of a line that began before; a part in which no other begins has ended."""
        while True:
            text = self._read(1 << 16)
            end = _LINE_END.search(text)
            self._position += len(text) if end is None else end.end()
            if not text or self._position >= self._stop:
                self._ended = True
                return
            if end is not None:
                self._begun = text[end.end() :]
                return

    def _read(self, wanted: int) -> bytes:
        r"""Return what follows; a `\r` at its end waits for what comes after it, which may be its `\n`."""
        while True:
            more = self._source.read(wanted)
            text, self._waiting = self._waiting + more, b""
            if not more or not text.endswith(b"\r"):
                return text
            text, self._waiting = text[:-1], b"\r"
            if text:
                return text
