"""A moment as a person writes it (ISO 8601, UTC where no offset stands there), and what moments are counted from."""

from __future__ import annotations

from datetime import UTC, datetime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_timestamp(text: str) -> datetime:
    """Return the moment that `text` names, with an offset from UTC always. Raises ValueError: it names none."""
    moment = datetime.fromisoformat(text.strip())
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
