"""Count CSV lines, and check that each one is a whole record."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from milepost.sources.kernel.whole_lines import WholeLines

_NEWLINE = 10


class RecordLines(WholeLines):
    """Counts lines, each of which must be one record. Fewer records than lines mean that one spans several lines.

    A record has at least one line, so equal counts prove that each line is one record. There is one gap: a parser ends
    a record at the end of its block, even inside quotes. So the last line of each block is checked for an open quote.

    Attributes:
        count: lines served so far, without empty ones.

    Args:
        is_closed: returns whether a line, given without its line end, leaves no quote open.
    """

    def __init__(self, content: io.RawIOBase | io.BytesIO, is_closed: Callable[[bytes], bool]) -> None:
        # pyarrow skips the empty line. After it, it does not take the first bytes of a part for a byte order mark.
        super().__init__(content, carry=b"\n")
        self.count = 0
        self._is_closed = is_closed

    def _checked(self, lines: bytes) -> bytes:
        if count := _count_non_empty(lines):
            self.is_blank = False
            self.count += count
            text = lines.rstrip(b"\r\n")
            if not self._is_closed(text[max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 :]):
                raise pa.ArrowInvalid("a line leaves a quote open")
        return lines


def _count_non_empty(lines: bytes) -> int:
    if b"\r" in lines:
        return sum(1 for line in lines.splitlines() if line)
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == _NEWLINE)  # several times as fast as a search for b"\n\n"
    # b"a\n\nb\n" has ends at 1, 2 and 4. A distance of 1 to the end before it (or to -1) is an empty line.
    empty = int(np.count_nonzero(np.diff(ends, prepend=-1) == 1))
    return len(ends) - empty + (bool(lines) and not lines.endswith(b"\n"))
