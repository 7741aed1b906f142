"""Records of one kind in a row, each written as what differs from the one before it: checkpoints of one job are alike.

Works on JSON values, before the strict reader sees them: what is left out is what the one before says.
"""

from __future__ import annotations

from typing import TypeAlias

Value: TypeAlias = dict[str, object]

_OPAQUE = frozenset({"summary"})
"""Fields that hold any JSON: what has no fixed keys is written whole."""


def packed(records: list[Value]) -> list[Value]:
    """Return the records, from the second on without what equals the one before."""
    return [record if index == 0 else _difference(records[index - 1], record) for index, record in enumerate(records)]


def unpacked(records: object) -> object:
    """Return what `packed` was given; what is no list of objects is returned as it is."""
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        return records
    found: list[Value] = []
    for record in records:
        found.append(_merged(found[-1], record) if found else record)
    return found


def _difference(before: Value, record: Value) -> Value:
    different: Value = {}
    for name, value in record.items():
        known = before.get(name)
        if name not in _OPAQUE and isinstance(value, dict) and isinstance(known, dict):
            value = _difference(known, value)
            if not value:
                continue
        elif name in before and known == value and type(known) is type(value):
            continue
        different[name] = value
    return different


def _merged(before: Value, record: Value) -> Value:
    merged = {**before, **record}
    for name, value in record.items():
        known = before.get(name)
        if name not in _OPAQUE and isinstance(value, dict) and isinstance(known, dict):
            merged[name] = _merged(known, value)
    return merged
