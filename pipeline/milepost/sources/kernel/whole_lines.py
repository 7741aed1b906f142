"""Pass whole lines to a parser, so that they can be counted and checked."""

from __future__ import annotations

import io

import pyarrow as pa


class WholeLines(io.RawIOBase):
    """Serves whole lines; pyarrow accepts it as a file.

    Attributes:
        is_blank: there were only blank lines so far.
    """

    def __init__(self, content: io.RawIOBase | io.BytesIO, carry: bytes = b"") -> None:
        super().__init__()
        self.is_blank = True
        self._content = content
        self._carry = carry

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        """Fill `target` with the whole lines available; return 0 only at the end.

        Raises:
            ArrowInvalid: a line is longer than `target`, or `_checked` refuses one.
        """
        while True:
            # `_carry` is the line that the last chunk broke off: content b"ab\ncd\nef" in chunks of 5 bytes is
            # served as b"ab\n" (carry b"cd"), b"cd\n" (carry b"ef") and b"ef".
            room = len(target) - len(self._carry)
            if room <= 0:
                self.is_blank = False
                raise pa.ArrowInvalid("a line is longer than a block")
            chunk = self._content.read(room) or b""
            text = self._carry + chunk
            # A `\r` at the end is carried, because it may be half of `\r\n`: see `ForwardFile.readinto`.
            end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1 if chunk else len(text)
            lines, self._carry = text[:end], text[end:]
            if lines or not chunk:
                lines = self._checked(lines)
                target[: len(lines)] = lines
                return len(lines)

    def _checked(self, lines: bytes) -> bytes:
        """Check and count lines; return the bytes to pass on. Raises ArrowInvalid: a line is not acceptable."""
        raise NotImplementedError
