"""A body of an object that is to be written: bytes, or a file that is not held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

_READ_BYTES = 1 << 20
"""Of a file, so many are held at once."""


def pieces_of(body: bytes | IO[bytes]) -> Iterator[bytes]:
    """Yield a body from its beginning to its end."""
    if isinstance(body, bytes):
        yield body
        return
    body.seek(0)
    while piece := body.read(_READ_BYTES):
        yield piece


def write_all(file: IO[bytes], piece: bytes) -> None:
    """Write all of some bytes to a file without a buffer: what the disk refuses is said now, not when it is closed."""
    view = memoryview(piece)
    while view:
        view = view[file.write(view) :]


def told_size(body: bytes | IO[bytes]) -> str:
    """Return the size of a body as messages have it; of a file, which may be the reason, nothing."""
    return f" ({len(body)} bytes)" if isinstance(body, bytes) else ""
