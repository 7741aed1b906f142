"""Cache the runs of consumed objects, which are immutable: each is read once."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from milepost.protocol.records import ObjectHandle, ObjectStore
from milepost.sources.planning import ConsumedSet, read_run
from milepost.storage import OBJECT_CACHE
from milepost.storage.concurrency import parallel_map


class ConsumedRuns:
    """The runs of one opened job. A server that opens the job again reads them from the cache of the process.

    Args:
        store: of the job; handles are relative to its root.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._newest: dict[str, dict[ObjectHandle, pa.Table]] = {}

    def read(self, source: str, handles: Sequence[ObjectHandle]) -> ConsumedSet:
        """Return the union of runs of a source, of which only those are read that the previous call did not have.

        Raises: StateCorrupt: a run is missing, or does not match its handle.
        """
        cached = self._newest.get(source, {})
        new = [handle for handle in handles if handle not in cached]
        cached = cached | dict(zip(new, parallel_map(self._store, self._run, new), strict=True))
        self._newest[source] = {handle: cached[handle] for handle in handles}
        return ConsumedSet.of(self._newest[source].values())

    def add(self, source: str, handle: ObjectHandle, run: pa.Table) -> None:
        """Cache a run that this process has written, so that it is not read again."""
        self._newest[source] = self._newest.get(source, {}) | {handle: run}

    def _run(self, handle: ObjectHandle) -> pa.Table:
        version = ("consumed", handle.key, handle.sha256)
        return OBJECT_CACHE.read(self._store, version, handle.size, lambda: read_run(self._store, handle))
