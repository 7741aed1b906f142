"""The savepoint audit compares a savepoint outside of the job's storage with its listing.

A savepoint's owner may move or delete it, and the list does not hear of that: it is asked where it was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from milepost.errors import NotFound, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.savepoint_document import decode_document
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.layout import SAVEPOINT_DOCUMENT
from milepost.protocol.records.manifest_state import Savepoint
from milepost.protocol.records.object_store import ObjectStore
from milepost.storage.object_handles import read_handle

_PARALLEL_STATS = 8


def audit_savepoint(context: JobContext, savepoint: Savepoint) -> Iterator[tuple[str, str]]:
    """Yield (key, problem) of each object of a savepoint that is not there with its size; its document is read whole.

    Raises: StoreUnavailable, EnvironmentUnusable: the place does not answer.
    """
    assert savepoint.location is not None, "one below the job is walked with it"
    root = context.store_at(savepoint.location)
    recorded = savepoint.document
    handle = ObjectHandle(SAVEPOINT_DOCUMENT, recorded.size, recorded.sha256)
    absent = _problem(root, handle)
    if absent is not None:
        yield SAVEPOINT_DOCUMENT, absent
        return
    try:
        document = decode_document(read_handle(root, handle), root.config.url)
    except StateCorrupt:
        yield SAVEPOINT_DOCUMENT, "another document than the one that was listed"
        return
    with ThreadPoolExecutor(_PARALLEL_STATS) as pool:
        problems = pool.map(lambda one: _problem(root, one), document.objects)
        for one, problem in zip(document.objects, problems, strict=True):
            if problem is not None:
                yield one.key, problem


def _problem(root: ObjectStore, handle: ObjectHandle) -> str | None:
    try:
        size = root.stat(handle.key).size
    except NotFound:
        return "missing"
    return None if size == handle.size else f"{size} bytes, recorded {handle.size}"
