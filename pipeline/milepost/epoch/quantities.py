"""Quantities in words."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1: "1 object", "2,000 objects"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
