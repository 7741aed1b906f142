"""The spill file holds bytes of one task that do not fit its memory, read back by position.

The file has no name: it is gone with the task, however that ends.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from milepost.protocol.records.errors import EnvironmentUnusable


class SpillFile:
    """One file, made when the first bytes come.

    Args:
        directory: on the node's disk; made when missing, private to this user.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = os.fspath(directory)
        self._descriptor: int | None = None
        self._size = 0
        self._lock = threading.Lock()

    def append(self, body: bytes | pa.Buffer) -> Spilled:
        """Keep some bytes. Raises EnvironmentUnusable: the disk is full or cannot be written."""
        view = memoryview(body)
        try:
            with self._lock:
                descriptor, offset = self._opened(), self._size
                self._size += view.nbytes
            written = 0
            while written < view.nbytes:
                written += os.pwrite(descriptor, view[written:], offset + written)
        except OSError as error:
            raise self._unusable("take", error) from error
        return Spilled(self, offset, view.nbytes)

    def read(self, offset: int, size: int) -> bytes:
        """Return the bytes from `offset` on. Raises EnvironmentUnusable: they cannot be read back."""
        parts: list[bytes] = []
        missing = size
        try:
            while missing:
                part = os.pread(self._opened(), missing, offset + size - missing)
                if not part:
                    raise OSError(f"its file ends {missing} bytes too early")
                parts.append(part)
                missing -= len(part)
        except OSError as error:
            raise self._unusable("give back", error) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def beside(self) -> SpillFile:
        """Return another one in the same folder, for what is needed less long."""
        return SpillFile(self._directory)

    def close(self) -> None:
        """Give the disk space back. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _opened(self) -> int:
        if self._descriptor is None:
            Path(self._directory).mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._directory) as file:
                self._descriptor = os.dup(file.fileno())
        return self._descriptor

    def _unusable(self, what: str, error: OSError) -> EnvironmentUnusable:
        return EnvironmentUnusable(
            f"node-local folder {self._directory} cannot {what} what does not fit in a task's memory ({error}). "
            "Nothing of this epoch is visible.",
            hint="Free space on that disk, or set MILEPOST_CACHE_DIR to a folder on another one.",
            directory=self._directory,
        )


@dataclass(frozen=True, slots=True)
class Spilled:
    """Where some bytes lie in a spill. size: how many they are."""

    spill: SpillFile
    offset: int
    size: int

    def read(self) -> bytes:
        return self.spill.read(self.offset, self.size)


class SpilledBodies(MutableMapping[str, bytes]):
    """Bodies of objects by key, each read from the disk whenever it is asked for."""

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
