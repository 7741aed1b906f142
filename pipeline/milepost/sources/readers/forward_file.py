"""Bytes that are made block by block, as a file that is read forward."""

from __future__ import annotations

import io


class ForwardFile(io.RawIOBase):
    """Hands on what `_next` makes; pyarrow takes it as a file."""

    def __init__(self) -> None:
        super().__init__()
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        """Fill `target` as far as bytes are at hand; 0 only at the end. Raises what `_next` raises."""
        if not self._ready:
            self._ready = self._next(len(target))
        count = min(len(target), len(self._ready))
        target[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _next(self, wanted: int) -> bytes:
        """Return what follows, about so many bytes; nothing only at the end."""
        raise NotImplementedError
