"""Read and write the retentions in the properties of a Delta table."""

from __future__ import annotations

import re
from collections.abc import Mapping

FILE_RETENTION = "delta.deletedFileRetentionDuration"
LOG_RETENTION = "delta.logRetentionDuration"

_MS = {
    "millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000,
}  # fmt: skip
_DURATION = re.compile(r"(?:interval\s+)?(\d+)\s+([a-z]+?)s?", re.IGNORECASE)
_DEFAULTS_MS = {FILE_RETENTION: 7 * _MS["day"], LOG_RETENTION: 30 * _MS["day"]}


def interval(duration_ms: int) -> str:
    """Return a duration as the text of a table property, rounded up to whole seconds."""
    return f"interval {-(-duration_ms // 1000)} seconds"


def duration_ms(properties: Mapping[str, str], name: str) -> int | None:
    """Return a retention of a table; None if the property cannot be parsed."""
    if name not in properties:
        return _DEFAULTS_MS[name]
    match = _DURATION.fullmatch(properties[name].strip())
    unit_ms = _MS.get(match[2].lower()) if match else None
    return int(match[1]) * unit_ms if match and unit_ms else None
