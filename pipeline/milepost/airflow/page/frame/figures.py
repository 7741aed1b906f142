"""Figures as people read them: counts, sizes, durations, moments. Each is "" or "–" for what is not known."""

from __future__ import annotations

from typing import Any

from milepost.epoch.quantities import counted, lasting, observed

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
    return lasting(value) if isinstance(value, (int, float)) else ""


def moment(value: Any) -> str:
    """Return an ISO 8601 time in UTC, to the second."""
    return str(value)[:19].replace("T", " ") if value else ""


FILTERS = {
    "count": count,
    "milliseconds": milliseconds,
    "size": size,
    "duration": duration,
    "moment": moment,
    "plural": counted,
    "observed": observed,
}
