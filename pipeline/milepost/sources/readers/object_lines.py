"""Lines that each hold one JSON object, told from others before the parser sees them.

pyarrow's parser dereferences null when the first value of a block is `null`, and makes a row of nulls of a later one.
"""

from __future__ import annotations

import io

import pyarrow as pa

from milepost.sources.readers.whole_lines import WholeLines

_OPENS, _CLOSES = b"{}"
_MARK = b"\xef\xbb\xbf"


class ObjectLines(WholeLines):
    """Hands on whole lines, each of which begins with `{` and ends with `}`.

    So no value spans two lines, and each line holds at least one object. Where a parser finds more values than lines,
    one of them holds more than an object.

    Attributes:
        count: lines handed on, blank ones not counted.

    Args:
        first: whether the content is from an object's beginning, where a byte order mark may be.
    """

    def __init__(self, content: io.RawIOBase | io.BytesIO, *, first: bool = True) -> None:
        super().__init__(content)
        self.count = 0
        self._started = not first

    def _taken(self, lines: bytes) -> bytes:
        if not self._started:
            lines, self._started = lines.removeprefix(_MARK), True
        # As most objects are written: seen at a glance, several times as fast.
        if lines.startswith(b"{") and lines.endswith(b"}\n") and b"\r" not in lines:
            ends = lines.count(b"\n")
            if lines.count(b"}\n{") == ends - 1:
                self.is_blank = False
                self.count += ends
                return lines
        for line in lines.splitlines():
            line = line.strip(b" \t")
            if line:
                self.is_blank = False
                if line[0] != _OPENS or line[-1] != _CLOSES:
                    raise pa.ArrowInvalid("a line is not an object")
                self.count += 1
        return lines
