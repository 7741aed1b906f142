"""Stored JSON documents that are not records: strict about their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.protocol.records.errors import StateCorrupt


def exact_fields(what: str, document: object, types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document when it has exactly these fields with these types (bool is no int); else StateCorrupt.

    Args:
        what: names the document in the error.
        types: per field what `isinstance` takes.
    """
    if not isinstance(document, dict) or set(document) != set(types):
        got = sorted(map(str, document)) if isinstance(document, dict) else type(document).__name__
        raise StateCorrupt(f"{what}: expected the fields {sorted(types)}, got {got}")
    for name, expected in types.items():
        value = document[name]
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise StateCorrupt(f"{what}: field {name!r} has the type {type(value).__name__}")
    return document
