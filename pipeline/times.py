"""Times as people read them: ISO 8601, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso_ms(milliseconds: int) -> str:
    """A time in milliseconds since the epoch, to the millisecond."""
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")


def iso_us(microseconds: int | None) -> str | None:
    """A watermark in microseconds since the epoch; None (minus infinity) stays None."""
    return None if microseconds is None else (_EPOCH + timedelta(microseconds=microseconds)).isoformat()
