"""Quantities formatted for people."""

from __future__ import annotations

from collections.abc import Sequence

_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1: "1 object", "2,000 objects"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """Return a noun with the numbers of those it means, at least one: "checkpoint 2", "checkpoints 2, 3"."""
    return f"{noun}{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def observed(name: str, value: float) -> str:
    """Format an expectation's metric by its name: a count as "3", a percentage with four digits as "0.03704"."""
    return f"{value:.4g}" if name.endswith("_percent") else str(value)


def lasting(milliseconds: float) -> str:
    """Format a duration in its two largest units: "250 ms", "1.5 s", "2 min", "5,052 d 21 h"."""
    if milliseconds < _SECOND:
        return f"{milliseconds:.0f} ms"
    if milliseconds < _MINUTE:
        return f"{milliseconds / _SECOND:.1f} s"
    if milliseconds < _HOUR:
        return _two(milliseconds, _MINUTE, "min", _SECOND, "s")
    if milliseconds < _DAY:
        return _two(milliseconds, _HOUR, "h", _MINUTE, "min")
    return _two(milliseconds, _DAY, "d", _HOUR, "h")


def _two(value: float, large: int, large_unit: str, small: int, small_unit: str) -> str:
    whole, rest = divmod(int(value), large)
    return f"{whole:,} {large_unit} {rest // small} {small_unit}" if rest // small else f"{whole:,} {large_unit}"
