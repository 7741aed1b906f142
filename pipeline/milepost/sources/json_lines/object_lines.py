"""Check that each line is a JSON object before pyarrow's parser sees it.

The parser crashes when the first value of a block is `null`, and turns a later `null` into a row of nulls.
"""

from __future__ import annotations

import io

import pyarrow as pa

from milepost.sources.kernel.whole_lines import WholeLines

_OPENS, _CLOSES = b"{}"
_MARK = b"\xef\xbb\xbf"


class ObjectLines(WholeLines):
    """Serves whole lines, each of which begins with `{` and ends with `}`.

    So no value spans two lines, and each line contains at least one object. If the parser finds more values than
    lines, some line contains several.

    Attributes:
        count: lines served so far, without blank ones.

    Args:
        first: whether the content is the beginning of the object, where a byte order mark may be.
    """

    def __init__(self, content: io.RawIOBase | io.BytesIO, *, first: bool = True) -> None:
        super().__init__(content)
        self.count = 0
        self._started = not first

    def _checked(self, lines: bytes) -> bytes:
        if not self._started:
            lines, self._started = lines.removeprefix(_MARK), True
        # Fast path for the usual layout: b'{"a":1}\n{"a":2}\n' has two line ends and one b"}\n{" between them.
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
