"""Families of key types: values of two types compare and hash equal only within a family."""

from __future__ import annotations

from milepost.language import FLOATS, INTEGERS, ColumnType


def key_family(type_: ColumnType) -> tuple[object, ...]:
    """Return the family of a key type. Values of two types compare and hash equal only within a family."""
    # int32 and int64: ("integer",), so 7 matches 7. timestamp[us] and timestamp[ns]: different families.
    if type_.kind in INTEGERS:
        return ("integer",)
    if type_.kind in FLOATS:
        return ("float",)
    if type_.kind == "timestamp":
        return type_.kind, type_.utc, type_.unit == "ns"
    return type_.kind, type_.scale
