"""Parse ISO 8601 timestamps, in UTC unless they have an offset."""

from __future__ import annotations

from datetime import UTC, datetime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_timestamp(text: str) -> datetime:
    """Parse a timestamp. The result always has an offset. Raises ValueError."""
    timestamp = datetime.fromisoformat(text.strip())
    return timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=UTC)
