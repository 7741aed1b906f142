"""The metadata of checkpoints that one opened job has read or written, by handle, as far as memory is given to it."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from milepost.protocol.records.checkpoints import ObjectHandle

if TYPE_CHECKING:
    from milepost.epoch.metadata import CheckpointMetadata


class KnownMetadata:
    """Keeps the newest, and drops the oldest beyond so many bytes as they are stored; several threads may use it."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._kept: dict[ObjectHandle, CheckpointMetadata] = {}
        self._lock = Lock()

    def __contains__(self, handle: ObjectHandle) -> bool:
        """Whether it is known."""
        return handle in self._kept

    def get(self, handle: ObjectHandle) -> CheckpointMetadata | None:
        """Return what is known under a handle."""
        return self._kept.get(handle)

    def keep(self, handle: ObjectHandle, metadata: CheckpointMetadata) -> None:
        """Keep one; the newest is kept however large it is."""
        with self._lock:
            if handle not in self._kept:
                self._bytes += handle.size
            self._kept[handle] = metadata
            while len(self._kept) > 1 and self._bytes > self._most_bytes:
                oldest = next(iter(self._kept))
                del self._kept[oldest]
                self._bytes -= oldest.size
