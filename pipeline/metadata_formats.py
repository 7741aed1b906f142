"""Older formats of `_metadata`, brought to the current one: retained checkpoints outlive the code that wrote them.

Format 1: epochs were always aligned: one firing watermark per operator, no rows in flight, no measured pace, no
job that ends.

Format 2: the code was recorded by one hash only, and an operator's signature had types and aggregates, which are
compared with the state schema since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def from_format_1(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document as format 2. Raises KeyError, TypeError: it is not one of format 1."""
    return {
        **document,
        "format": 2,
        "sources": {name: {**source, "finished": False} for name, source in document["sources"].items()},
        "operators": {uid: _operator(item) for uid, item in document["operators"].items()},
        "unaligned": False,
        "held_back": None,
        "pace": {"ms_per_source_byte": None, "in_flight_ms": 0.0},
    }


def from_format_2(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document as format 3. Raises KeyError, TypeError: it is not one of format 2."""
    signatures = document["signatures"]
    operators = {uid: _signature(item) for uid, item in signatures.get("operators", {}).items()}
    named = {"operators": operators} if operators else {}
    return {**document, "format": 3, "code": {}, "signatures": {**signatures, **named}}


def _signature(item: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in item.items() if name != "aggregates"}
    return kept | ({"key": [column for column, _ in item["key"]]} if "key" in item else {})


def _operator(item: Mapping[str, Any]) -> dict[str, Any]:
    subtasks = len(item["handles"])
    kept = {name: value for name, value in item.items() if name != "firing_us"}
    return {
        **kept,
        "firing": [item["firing_us"]] * subtasks,
        "channels": [None] * subtasks,
        "processed_bytes": [0] * subtasks,
    }
