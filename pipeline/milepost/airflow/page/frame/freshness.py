"""Freshness says how long ago something was, by this server's clock."""

from __future__ import annotations

from datetime import UTC, datetime

from milepost.jobspec.values.times.durations import in_ms


def since_ms(moment: str | None) -> int | None:
    """Return milliseconds since an ISO 8601 time, 0 for one that is still to come; None for none."""
    if moment is None:
        return None
    return max(0, in_ms(datetime.now(UTC) - datetime.fromisoformat(moment)))
