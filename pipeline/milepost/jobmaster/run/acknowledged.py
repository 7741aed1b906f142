"""Acknowledged is what the subtasks of an epoch say of one source or operator."""

from __future__ import annotations

from typing import Any

from milepost.protocol.exchange.acknowledgements import VerifiedAnswers


def acknowledged(verified: VerifiedAnswers, part: str, name: str) -> list[dict[str, Any]]:
    """Return what the subtasks say of one source or one operator, in their order.

    Args:
        part: ``sources`` or ``operators``. name: of the source, or uid of the operator.
    """
    found = []
    for ack in verified.acknowledgements:
        items = ack.payload.get(part)
        if isinstance(items, dict) and name in items:
            found.append(items[name])
    return found
