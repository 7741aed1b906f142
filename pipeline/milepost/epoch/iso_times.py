"""Times as people read them: ISO 8601, UTC."""

from __future__ import annotations

from datetime import datetime, timedelta

from milepost.jobspec.values.times import EPOCH, in_us, iso_text
from milepost.protocol.exchange import END_OF_TIME_US


def iso_ms(milliseconds: int) -> str:
    """Return a time in milliseconds since the epoch, to the millisecond."""
    return (EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")


def watermark_text(microseconds: int | None) -> str | None:
    """Return a watermark in microseconds since the epoch; None (minus infinity) stays None, plus infinity is "end"."""
    if microseconds is None or microseconds == END_OF_TIME_US:
        return None if microseconds is None else "end"
    try:
        return (EPOCH + timedelta(microseconds=microseconds)).isoformat()
    except OverflowError:
        return f"{iso_text(microseconds, 'us')}+00:00"


def watermark_us(text: str) -> int:
    """Return the watermark that `watermark_text` told so."""
    if text == "end":
        return END_OF_TIME_US
    try:
        return in_us(datetime.fromisoformat(text) - EPOCH)
    except ValueError:  # its year has not four digits
        import numpy

        return int(numpy.datetime64(text.removesuffix("+00:00"), "us").astype(numpy.int64))
