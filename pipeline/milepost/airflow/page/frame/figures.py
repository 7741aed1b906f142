"""Figures as people read them: counts, sizes, durations, moments. Each is "" or "–" for what is not known."""

from __future__ import annotations

from typing import Any

_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
UNKNOWN = "–"


def count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def milliseconds(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else UNKNOWN


def size(value: Any) -> str:
    """Return a number of bytes, in decimal units as the specs write them."""
    if not isinstance(value, (int, float)):
        return ""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def duration(value: Any) -> str:
    """Return milliseconds in the two largest units that they have."""
    if not isinstance(value, (int, float)):
        return ""
    if value < _SECOND:
        return f"{value:.0f} ms"
    if value < _MINUTE:
        return f"{value / _SECOND:.1f} s"
    if value < _HOUR:
        return _two(value, _MINUTE, "min", _SECOND, "s")
    if value < _DAY:
        return _two(value, _HOUR, "h", _MINUTE, "min")
    return _two(value, _DAY, "d", _HOUR, "h")


def _two(value: float, large: int, large_unit: str, small: int, small_unit: str) -> str:
    whole, rest = divmod(int(value), large)
    return f"{whole:,} {large_unit} {rest // small} {small_unit}" if rest // small else f"{whole:,} {large_unit}"


def moment(value: Any) -> str:
    """Return an ISO 8601 time in UTC, to the second."""
    return str(value)[:19].replace("T", " ") if value else ""


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


FILTERS = {
    "count": count,
    "milliseconds": milliseconds,
    "size": size,
    "duration": duration,
    "moment": moment,
    "plural": plural,
}
