"""Check that the objects of a savepoint outside of the job's storage exist.

The savepoint's owner may move or delete it without the job knowing.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from milepost.errors import NotFound, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.savepoint_document import decode_document
from milepost.protocol.records import SAVEPOINT_DOCUMENT, ObjectHandle, ObjectStore, Savepoint
from milepost.storage import read_handle

_PARALLEL_STATS = 8


def audit_savepoint(context: JobContext, savepoint: Savepoint) -> Iterator[tuple[str, str]]:
    """Yield (key, problem) of each object that is missing or has another size. The document is read completely.

    Raises: StoreUnavailable, EnvironmentUnusable: the location does not answer.
    """
    assert savepoint.location is not None, "a savepoint in the job's storage is walked with the job"
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
        yield SAVEPOINT_DOCUMENT, "not the document that was listed"
        return
    with ThreadPoolExecutor(_PARALLEL_STATS) as pool:
        problems = pool.map(lambda handle: _problem(root, handle), document.objects)
        for obj, problem in zip(document.objects, problems, strict=True):
            if problem is not None:
                yield obj.key, problem


def _problem(root: ObjectStore, handle: ObjectHandle) -> str | None:
    try:
        size = root.stat(handle.key).size
    except NotFound:
        return "missing"
    return None if size == handle.size else f"{size} bytes, recorded {handle.size}"
