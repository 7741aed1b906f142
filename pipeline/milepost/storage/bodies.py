"""Object bodies to write: bytes, or a file that is too large for memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

_READ_BYTES = 1 << 20
"""Bytes of a file in memory at a time."""


def body_pieces(body: bytes | IO[bytes]) -> Iterator[bytes]:
    """Yield a body from its start to its end. A file is rewound first."""
    if isinstance(body, bytes):
        yield body
        return
    body.seek(0)
    while piece := body.read(_READ_BYTES):
        yield piece


def write_all(file: IO[bytes], piece: bytes) -> None:
    """Write all bytes to an unbuffered file, so that a full disk raises here and not when the file is closed."""
    view = memoryview(piece)
    while view:
        view = view[file.write(view) :]


def size_text(body: bytes | IO[bytes]) -> str:
    """Return the size of a body for a message, or "" for a file: asking for its size may raise."""
    return f" ({len(body)} bytes)" if isinstance(body, bytes) else ""
