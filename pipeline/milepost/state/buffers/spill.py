"""Spill bytes that do not fit in memory to an unnamed file, and read them back.

The kernel frees the file when the process ends, however it ends.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from milepost.protocol.records import unusable_disk_error

Guard = Callable[[str], AbstractContextManager[None]]
"""Reports disk errors. Its argument is the operation that failed: "take" (write) or "give back" (read)."""


class SpillFile:
    """One append-only file, created by the first append.

        append(b"abc") -> offset 0, size 3      append(b"de") -> offset 3, size 2      read(3, 2) -> b"de"

    Args:
        directory: on the node's disk. It is created if missing, private to this user.
        guard: reports disk errors; None: as errors of a task.
    """

    def __init__(self, directory: str | os.PathLike[str], guard: Guard | None = None) -> None:
        self._directory = os.fspath(directory)
        self._guard = guard or partial(_task_guard, self._directory)
        self._descriptor: int | None = None
        self._closing: Callable[[], object] | None = None
        self._size = 0
        self._lock = threading.Lock()

    def append(self, body: bytes | pa.Buffer) -> Spilled:
        """Write bytes and return their location. Raises EnvironmentUnusable: the disk is full or not writable."""
        view = memoryview(body)
        with self._guard("take"):
            with self._lock:
                descriptor, offset = self._open(), self._size
                self._size += view.nbytes
            written = 0
            while written < view.nbytes:
                written += os.pwrite(descriptor, view[written:], offset + written)
        return Spilled(self, offset, view.nbytes)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`. Raises EnvironmentUnusable: they cannot be read back."""
        parts: list[bytes] = []
        missing = size
        with self._guard("give back"):
            while missing:
                part = os.pread(self._open(), missing, offset + size - missing)
                if not part:
                    raise OSError(errno.EIO, f"its file ends {missing} bytes too early")
                parts.append(part)
                missing -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def sibling(self) -> SpillFile:
        """Return a new file in the same folder, for data with a shorter life."""
        return SpillFile(self._directory)

    def close(self) -> None:
        """Free the disk space. Idempotent."""
        if self._closing is not None:
            self._closing()
        self._descriptor = self._closing = None

    def _open(self) -> int:
        if self._descriptor is None:
            Path(self._directory).mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._directory) as file:
                self._descriptor = os.dup(file.fileno())
            self._closing = weakref.finalize(self, os.close, self._descriptor)
        return self._descriptor


@contextmanager
def _task_guard(directory: str, operation: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unusable_disk_error(
            directory,
            f"{operation} what does not fit in a task's memory",
            error,
            alternative="set MILEPOST_CACHE_DIR to a folder on another disk",
            now_true="Nothing of this epoch is visible.",
        ) from error


@dataclass(frozen=True, slots=True)
class Spilled:
    """Location of bytes in a spill file; offset and size in bytes."""

    spill: SpillFile
    offset: int
    size: int

    def read(self) -> bytes:
        return self.spill.read(self.offset, self.size)


class SpilledBodies(MutableMapping[str, bytes]):
    """Object bodies by key, stored on disk. Each access reads the body again."""

    def __init__(self, spill: SpillFile) -> None:
        self._spill = spill
        self._bodies: dict[str, Spilled] = {}

    def __getitem__(self, key: str) -> bytes:
        return self._bodies[key].read()

    def __setitem__(self, key: str, body: bytes) -> None:
        self._bodies[key] = self._spill.append(body)

    def __delitem__(self, key: str) -> None:
        del self._bodies[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._bodies)

    def __len__(self) -> int:
        return len(self._bodies)
