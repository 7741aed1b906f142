"""Field types of keys that stored records refer to: each stays below the job's prefix."""

from __future__ import annotations

from typing import Annotated

from milepost.protocol.records.layout import key_fault


def own_prefix_fault(key: str) -> str | None:
    """Return why a stored key, or prefix ending in ``/``, must not be followed, or None (DESIGN 9)."""
    fault = key_fault(key)
    return None if fault is None else f"{key!r} must stay below the job's prefix: {fault}"


def own_key_fault(key: str) -> str | None:
    """Return why a stored key cannot be that of one object of the job, or None."""
    return f"{key!r} names no object: it ends in `/`" if key.endswith("/") else own_prefix_fault(key)


OwnPrefix = Annotated[str, own_prefix_fault]
OwnKey = Annotated[str, own_key_fault]
