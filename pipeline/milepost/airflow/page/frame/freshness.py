"""Freshness says how long ago something was, by this server's clock."""

from __future__ import annotations

from datetime import UTC, datetime


def since_ms(moment: str | None) -> int | None:
    """Return milliseconds since an ISO 8601 time, 0 for one that is still to come; None for none."""
    if moment is None:
        return None
    age = datetime.now(UTC) - datetime.fromisoformat(moment)
    return max(0, round(age.total_seconds() * 1000))
