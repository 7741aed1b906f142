"""Positions of external systems as text."""

from __future__ import annotations

import json
from collections.abc import Iterator

from milepost.protocol.landed.records import Position


def position_text(position: Position, characters: int | None = None) -> str:
    """Return a position as JSON: {"next": 40}. characters: maximum length; None: no limit."""
    text = json.dumps(position, sort_keys=True, default=str)
    return text if characters is None or len(text) <= characters else f"{text[:characters]}…"


def position_changes(before: Position, after: Position, name: str = "") -> Iterator[str]:
    """Yield what differs between two positions, as texts.

    {"clicks": {"0": 120, "1": 7}} and {"clicks": {"0": 300, "1": 7}} -> "clicks.0: 120 -> 300"
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from position_changes(before.get(key), after.get(key), f"{name}.{key}" if name else key)
    elif before != after:
        yield f"{name + ': ' if name else ''}{position_text(before)} -> {position_text(after)}"
