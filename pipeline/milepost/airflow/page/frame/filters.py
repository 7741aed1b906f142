"""Jinja filters that format counts, sizes, durations and times.

An unknown value becomes an empty string.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from milepost.epoch import counted, lasting
from milepost.language.times import in_ms


def count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def size(value: Any) -> str:
    """Format a number of bytes in decimal units, as specs do: 1_500 becomes `1.5 kB`."""
    if not isinstance(value, (int, float)):
        return ""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def duration(value: Any) -> str:
    """Format milliseconds in their two largest units: 3_723_000 becomes `1 h 2 min`."""
    return lasting(value) if isinstance(value, (int, float)) else ""


def moment(value: Any) -> str:
    """Format an ISO 8601 time in UTC as `2026-01-31 06:00:00`."""
    return str(value)[:19].replace("T", " ") if value else ""


def age_ms(time: str | None) -> int | None:
    """Return the milliseconds since an ISO 8601 time by this server's clock: 0 for a future time, None for None."""
    if time is None:
        return None
    return max(0, in_ms(datetime.now(UTC) - datetime.fromisoformat(time)))


FILTERS = {
    "count": count,
    "size": size,
    "duration": duration,
    "moment": moment,
    "plural": counted,
    "age": age_ms,
}
