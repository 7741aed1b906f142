"""Immutable objects by handle: what is read is what was written, or StateCorrupt (I7)."""

from __future__ import annotations

import hashlib

from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.errors import NotFound, StateCorrupt
from milepost.protocol.records.object_store import ObjectStore
from milepost.protocol.retention.handle_check import MISSING, handle_fault


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
