"""Lines that each hold one JSON object, told from others before the parser sees them.

pyarrow's parser dereferences null when the first value of a block is `null`, and makes a row of nulls of a later one.
"""

from __future__ import annotations

import io

import pyarrow as pa

_OPENS, _CLOSES = b"{}"
_MARK = b"\xef\xbb\xbf"


class ObjectLines(io.RawIOBase):
    """Hands on whole lines, each of which begins with `{` and ends with `}`; pyarrow takes it as a file.

    So no value spans two lines, and each line holds at least one object. Where a parser finds more values than lines,
    one of them holds more than an object.

    Attributes:
        count: lines handed on, blank ones not counted. is_blank: no other was met.

    Args:
        first: whether the content is from an object's beginning, where a byte order mark may be.
    """

    def __init__(self, content: io.RawIOBase | io.BytesIO, *, first: bool = True) -> None:
        super().__init__()
        self.count = 0
        self.is_blank = True
        self._content = content
        self._begun = b""
        self._started = not first

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        """Fill `target` with lines, as far as content is at hand; 0 only at the end.

        Raises:
            ArrowInvalid: a line holds something else than objects, or is longer than `target`.
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
                self._check(lines)
                target[: len(lines)] = lines
                return len(lines)

    def _check(self, lines: bytes) -> None:
        if not self._started:
            lines, self._started = lines.removeprefix(_MARK), True
        # As most objects are written: seen at a glance, several times as fast.
        if lines.startswith(b"{") and lines.endswith(b"}\n") and b"\r" not in lines:
            ends = lines.count(b"\n")
            if lines.count(b"}\n{") == ends - 1:
                self.is_blank = False
                self.count += ends
                return
        for line in lines.splitlines():
            line = line.strip(b" \t")
            if line:
                self.is_blank = False
                if line[0] != _OPENS or line[-1] != _CLOSES:
                    raise pa.ArrowInvalid("a line is not an object")
                self.count += 1
