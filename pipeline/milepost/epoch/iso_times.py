"""Times as ISO 8601 text in UTC."""

from __future__ import annotations

from datetime import datetime, timedelta

from milepost.language.times import EPOCH, in_us, iso_text
from milepost.protocol.exchange import END_OF_TIME_US


def iso_ms(milliseconds: int) -> str:
    """Format milliseconds since the epoch: 1_700_000_000_123 is "2023-11-14T22:13:20.123+00:00"."""
    return (EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")


def watermark_text(microseconds: int | None) -> str | None:
    """Format a watermark in microseconds since the epoch. None (minus infinity) stays None, END_OF_TIME_US is "end"."""
    if microseconds is None or microseconds == END_OF_TIME_US:
        return None if microseconds is None else "end"
    try:
        return (EPOCH + timedelta(microseconds=microseconds)).isoformat()
    except OverflowError:
        return f"{iso_text(microseconds, 'us')}+00:00"


def recorded_watermark_us(text: object) -> int | None:
    """Parse the watermark of a recorded checkpoint. None: it is not recorded, there is none, or the job is drained."""
    microseconds = watermark_us(text) if isinstance(text, str) else None
    return None if microseconds == END_OF_TIME_US else microseconds


def watermark_us(text: str) -> int:
    """Parse text that `watermark_text` returned; it is never None. Microseconds since the epoch."""
    if text == "end":
        return END_OF_TIME_US
    try:
        return in_us(datetime.fromisoformat(text) - EPOCH)
    except ValueError:  # its year does not have four digits
        import numpy

        return int(numpy.datetime64(text.removesuffix("+00:00"), "us").astype(numpy.int64))
