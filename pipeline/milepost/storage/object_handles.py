"""Read immutable objects by handle, verified by size and SHA-256 (I7)."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from milepost.errors import CommitConflict, NotFound, StateCorrupt
from milepost.protocol.records import ObjectHandle, ObjectStat, ObjectStore
from milepost.protocol.retention import MISSING, digest_fault, handle_fault
from milepost.storage.bodies import write_all
from milepost.storage.concurrency.prefetching import prefetched_map
from milepost.storage.scratch_disk import on_scratch_disk, scratch_file

IN_MEMORY_BYTES = 16 << 20
"""A larger object is read in pieces through the scratch disk and never held in memory as a whole."""

_REQUEST_BYTES = 8 << 20
"""Size of one ranged read of a larger object."""

_PREFETCHED_BYTES = 32 << 20
"""Limit of small objects in memory that are prefetched."""

_TAKE = "take an object that is too large to be held in memory"
"""What fails when the disk is full, for the error message."""


def handle_of(key: str, body: bytes) -> ObjectHandle:
    """Return the handle of an object with this body."""
    return ObjectHandle(key, len(body), hashlib.sha256(body).hexdigest())


def write_content_addressed(store: ObjectStore, prefix: str, suffix: str, body: bytes) -> ObjectHandle:
    """Write a body under its own hash, so that a repeated write changes nothing.

    Args:
        prefix: start of the key.
        suffix: end of the key, e.g. ``.parquet``.
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
    """Yield the verified body of a handle as a file: in memory, or on the scratch disk if it is large.

    Raises:
        StateCorrupt: as `read_handle`.
        EnvironmentUnusable: the scratch disk is full or broken.
    """
    if handle.size <= IN_MEMORY_BYTES:
        yield io.BytesIO(read_handle(store, handle))
        return
    with scratch_file(_TAKE) as scratch:
        _check_pieces(store, handle, scratch)
        yield scratch


def handle_files(store: ObjectStore, handles: Sequence[ObjectHandle]) -> Iterator[IO[bytes]]:
    """Yield the body of each object as `handle_file` does. A file is valid until the next one is requested.

    Small objects are prefetched.

    Raises:
        As `handle_file`.
    """

    def small_body(handle: ObjectHandle) -> bytes | None:
        return read_handle(store, handle) if handle.size <= IN_MEMORY_BYTES else None

    sized = ((handle, handle.size if handle.size <= IN_MEMORY_BYTES else 0) for handle in handles)
    for handle, body in zip(handles, prefetched_map(store, small_body, sized, _PREFETCHED_BYTES), strict=True):
        if body is not None:
            yield io.BytesIO(body)
            continue
        with handle_file(store, handle) as file:
            yield file


@contextmanager
def stored_file(store: ObjectStore, key: str) -> Iterator[IO[bytes]]:
    """Yield the current version of an object without a recorded handle as a file.

    Raises:
        NotFound: there is no such object.
        CommitConflict: it was replaced during the read.
        EnvironmentUnusable: as `handle_file`.
    """
    stat = store.stat(key)
    if stat.size <= IN_MEMORY_BYTES:
        yield io.BytesIO(store.get_if_match(key, stat.etag))
        return
    with scratch_file(_TAKE) as scratch:
        digest_of(store, stat, scratch)
        yield scratch


def check_handle(store: ObjectStore, handle: ObjectHandle) -> None:
    """Verify the object that a handle refers to, in pieces, without keeping its body. Raises: as `read_handle`."""
    if handle.size <= IN_MEMORY_BYTES:
        read_handle(store, handle)
    else:
        _check_pieces(store, handle, None)


def _check_pieces(store: ObjectStore, handle: ObjectHandle, scratch: IO[bytes] | None) -> None:
    """Verify an object against its handle in pieces, and copy each piece to `scratch`."""
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
    """Return the SHA-256 of one version of an object. The object is read in pieces.

    Args:
        scratch: an unbuffered file that receives the bytes. It is rewound after the last one.
        who: as in `on_scratch_disk`.
    Raises:
        NotFound, CommitConflict: as `stored_pieces`.
        EnvironmentUnusable: the scratch disk is full or broken.
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
    """Yield the bytes of one version of an object in pieces of 8 MB.

    Raises:
        NotFound: there is no such object.
        CommitConflict: the object has another version.
    """
    for start in range(0, stat.size, _REQUEST_BYTES):
        yield store.get_range(stat.key, stat.etag, start, min(start + _REQUEST_BYTES, stat.size))


def stat_handle(store: ObjectStore, handle: ObjectHandle) -> ObjectStat:
    """Return the state of the object of a handle, which exists and has its size. Its contents are not read.

    Raises:
        StateCorrupt: the object is missing or has another size.
    """
    try:
        stat = store.stat(handle.key)
    except NotFound as error:
        raise _corrupt(store, handle, MISSING) from error
    if stat.size != handle.size:
        raise _corrupt(store, handle, f"expected {handle.size} bytes, got {stat.size}")
    return stat


def _corrupt(store: ObjectStore, handle: ObjectHandle, fault: str) -> StateCorrupt:
    return StateCorrupt(
        f"object {handle.key!r} of {store.config.url} does not match the checkpoint that refers to it: {fault}. "
        "Nothing was changed.",
        key=handle.key,
        fault=fault,
    )
