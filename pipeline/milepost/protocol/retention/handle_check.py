"""Verify a stored body against its handle (I7). All readers share this rule."""

from __future__ import annotations

import hashlib

from milepost.protocol.records.checkpoints import ObjectHandle

MISSING = "the object is missing"


def handle_fault(body: bytes, handle: ObjectHandle) -> str | None:
    """Return how a body differs from its handle, as one clause; None if it matches."""
    digest = hashlib.sha256(body).hexdigest() if len(body) == handle.size else ""
    return digest_fault(len(body), digest, handle)


def digest_fault(size: int, sha256: str, handle: ObjectHandle) -> str | None:
    """Return how a body of this size and SHA-256 differs from its handle, as one clause; None if it matches.

    Args:
        sha256: ignored if the size differs.
    """
    if size != handle.size:
        return f"expected {handle.size} bytes, got {size}"
    return None if sha256 == handle.sha256 else f"expected SHA-256 {handle.sha256}, got {sha256}"
