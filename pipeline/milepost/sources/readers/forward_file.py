"""A read-only, forward-only file whose bytes are produced block by block."""

from __future__ import annotations

import io


class ForwardFile(io.RawIOBase):
    """Serves the bytes that `_next` produces; pyarrow accepts it as a file."""

    def __init__(self) -> None:
        super().__init__()
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        """Fill `target` with the bytes available; return 0 only at the end. Raises what `_next` raises."""
        if not self._ready:
            self._ready = self._next(len(target))
        count = min(len(target), len(self._ready))
        target[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _next(self, size: int) -> bytes:
        """Return the next bytes, about `size` of them; b"" only at the end."""
        raise NotImplementedError
