"""Immutable objects by handle: what is read is what was written, or StateCorrupt (I7)."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.errors import CommitConflict, NotFound, StateCorrupt
from milepost.protocol.records.object_store import ObjectStat, ObjectStore
from milepost.protocol.retention.handle_check import MISSING, digest_fault, handle_fault
from milepost.storage.bodies import write_all
from milepost.storage.concurrency.prefetched_map import prefetched_map
from milepost.storage.scratch_disk import on_scratch_disk, scratch_file

IN_MEMORY_BYTES = 16 << 20
"""An object of more bytes is read piece by piece: none of its readers holds it."""

_REQUEST_BYTES = 8 << 20
"""Of a larger one, so many are asked for at once."""

_AHEAD_BYTES = 32 << 20
"""Of small objects that are read ahead."""

_TAKE = "take an object that is too large to be held in memory"
"""What the disk cannot do when it refuses."""


def handle_of(key: str, body: bytes) -> ObjectHandle:
    """Return the handle of an object with this body."""
    return ObjectHandle(key, len(body), hashlib.sha256(body).hexdigest())


def write_content_addressed(store: ObjectStore, prefix: str, suffix: str, body: bytes) -> ObjectHandle:
    """Write a body under its own hash: writing it twice is writing it once.

    Args:
        prefix: of the key. suffix: e.g. ``.parquet``.
    Returns:
        The handle of ``<prefix><sha256><suffix>``.
    """
    digest = hashlib.sha256(body).hexdigest()
    key = f"{prefix}{digest}{suffix}"
    store.put(key, body)
    return ObjectHandle(key=key, size=len(body), sha256=digest)


def read_handle(store: ObjectStore, handle: ObjectHandle) -> bytes:
    """Return the body that a handle refers to.

    Raises:
        StateCorrupt: the object is missing, or its size or SHA-256 differs.
    """
    try:
        body = store.get(handle.key)
    except NotFound as error:
        raise _corrupt(store, handle, MISSING) from error
    fault = handle_fault(body, handle)
    if fault is not None:
        raise _corrupt(store, handle, fault)
    return body


@contextmanager
def handle_file(store: ObjectStore, handle: ObjectHandle) -> Iterator[IO[bytes]]:
    """Yield the body that a handle refers to as a file, checked as a whole: in memory, or of a large one on the disk.

    Raises:
        StateCorrupt: as `read_handle`. EnvironmentUnusable: the machine's temporary folder does not take it.
    """
    if handle.size <= IN_MEMORY_BYTES:
        yield io.BytesIO(read_handle(store, handle))
        return
    with scratch_file(_TAKE) as scratch:
        _check_pieces(store, handle, scratch)
        yield scratch


def handle_files(store: ObjectStore, handles: Sequence[ObjectHandle]) -> Iterator[IO[bytes]]:
    """Yield the body of each of some objects as `handle_file` does, until the next one; small ones are read ahead.

    Raises: as `handle_file`.
    """

    def body(handle: ObjectHandle) -> bytes | None:
        return read_handle(store, handle) if handle.size <= IN_MEMORY_BYTES else None

    sized = ((handle, handle.size if handle.size <= IN_MEMORY_BYTES else 0) for handle in handles)
    for handle, known in zip(handles, prefetched_map(store, body, sized, _AHEAD_BYTES), strict=True):
        if known is not None:
            yield io.BytesIO(known)
            continue
        with handle_file(store, handle) as file:
            yield file


@contextmanager
def stored_file(store: ObjectStore, key: str) -> Iterator[IO[bytes]]:
    """Yield the body of an object of which nothing is recorded as a file, in the version that it has now.

    Raises: NotFound. CommitConflict: it was replaced meanwhile. EnvironmentUnusable: as `handle_file`.
    """
    stat = store.stat(key)
    if stat.size <= IN_MEMORY_BYTES:
        yield io.BytesIO(store.get_if_match(key, stat.etag))
        return
    with scratch_file(_TAKE) as scratch:
        digest_of(store, stat, scratch)
        yield scratch


def check_handle(store: ObjectStore, handle: ObjectHandle) -> None:
    """Read the object that a handle refers to, piece by piece, and keep nothing of it. Raises: as `read_handle`."""
    if handle.size <= IN_MEMORY_BYTES:
        read_handle(store, handle)
    else:
        _check_pieces(store, handle, None)


def _check_pieces(store: ObjectStore, handle: ObjectHandle, scratch: IO[bytes] | None) -> None:
    """Compare an object with its handle, piece by piece, each of which is written to `scratch`."""
    try:
        stat = store.stat(handle.key)
        digest = digest_of(store, stat, scratch) if stat.size == handle.size else ""
    except NotFound as error:
        raise _corrupt(store, handle, MISSING) from error
    except CommitConflict as error:
        raise _corrupt(store, handle, "it was replaced while it was read") from error
    fault = digest_fault(stat.size, digest, handle)
    if fault is not None:
        raise _corrupt(store, handle, fault)


def digest_of(store: ObjectStore, stat: ObjectStat, scratch: IO[bytes] | None = None, *, who: str = "") -> str:
    """Return the SHA-256 of one version of an object, which is read piece by piece.

    Args:
        scratch: a file without a buffer that its bytes are copied to, open at its beginning afterwards.
        who: as of `on_scratch_disk`.
    Raises: as `stored_pieces`. EnvironmentUnusable: the machine's temporary folder does not take it.
    """
    digest = hashlib.sha256()
    for piece in stored_pieces(store, stat):
        digest.update(piece)
        if scratch is not None:
            with on_scratch_disk(_TAKE, who=who):
                write_all(scratch, piece)
    if scratch is not None:
        scratch.seek(0)
    return digest.hexdigest()


def stored_pieces(store: ObjectStore, stat: ObjectStat) -> Iterator[bytes]:
    """Yield the bytes of one version of an object, in pieces of 8 MB. Raises: NotFound. CommitConflict: another one."""
    for start in range(0, stat.size, _REQUEST_BYTES):
        yield store.get_range(stat.key, stat.etag, start, min(start + _REQUEST_BYTES, stat.size))


def stat_handle(store: ObjectStore, handle: ObjectHandle) -> None:
    """Check that a handle's object exists with its size, without reading it.

    Raises:
        StateCorrupt: it is missing or has another size.
    """
    try:
        size = store.stat(handle.key).size
    except NotFound as error:
        raise _corrupt(store, handle, MISSING) from error
    if size != handle.size:
        raise _corrupt(store, handle, f"expected {handle.size} bytes, got {size}")


def _corrupt(store: ObjectStore, handle: ObjectHandle, fault: str) -> StateCorrupt:
    return StateCorrupt(
        f"object {handle.key!r} of {store.config.url} does not match the checkpoint that refers to it: {fault}. "
        "Nothing was changed.",
        key=handle.key,
    )
