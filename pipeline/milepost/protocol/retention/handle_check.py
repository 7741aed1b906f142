"""The handle check compares a stored body with its handle (I7): one rule for every reader."""

from __future__ import annotations

import hashlib

from milepost.protocol.records.checkpoints import ObjectHandle

MISSING = "the object is missing"


def handle_fault(body: bytes, handle: ObjectHandle) -> str | None:
    """Return how a body differs from what its handle recorded, one clause; None when it is the same."""
    if len(body) != handle.size:
        return f"expected {handle.size} bytes, got {len(body)}"
    digest = hashlib.sha256(body).hexdigest()
    return None if digest == handle.sha256 else f"expected SHA-256 {handle.sha256}, got {digest}"
