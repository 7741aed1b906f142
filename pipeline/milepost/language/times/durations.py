"""Parse and format durations (`30s 5m 2h 3d`) and sizes (`64MB`)."""

from __future__ import annotations

import re
from datetime import timedelta

_DURATION = re.compile(r"(\d{1,9})(ms|s|m|h|d)")
_PRECISE = re.compile(r"(\d{1,16})us")
_SIZE = re.compile(r"(\d{1,15})\s*(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)")
_LONGEST_DAYS = 36_500
_MICROSECONDS = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_BYTES: dict[str, int] = {"B": 1}
_BYTES |= {f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)}
_BYTES |= {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)}


def parse_duration(text: object) -> timedelta:
    """Parse a duration: a whole number followed by ms, s, m, h or d.

    Raises:
        ValueError: any other text. A bare number is refused, because its unit would be a guess.
    """
    if isinstance(text, timedelta):
        return text
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"expected a duration such as 30s, 5m, 2h or 3d, got {text!r}")
    microseconds = int(match[1]) * _MICROSECONDS[match[2]]
    if microseconds > _LONGEST_DAYS * _MICROSECONDS["d"]:
        raise ValueError(f"expected a duration of at most {_LONGEST_DAYS}d, got {text}")
    return timedelta(microseconds=microseconds)


def parse_precise_duration(text: object) -> timedelta:
    """Parse a duration that may be a number of microseconds, `1800000001us`. Raises ValueError."""
    match = _PRECISE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return parse_duration(text)
    if int(match[1]) > _LONGEST_DAYS * _MICROSECONDS["d"]:
        raise ValueError(f"expected a duration of at most {_LONGEST_DAYS}d, got {text}")
    return timedelta(microseconds=int(match[1]))


def parse_signed_duration(text: object) -> timedelta:
    """Parse a duration with an optional minus sign. Raises ValueError."""
    if isinstance(text, str) and text.startswith("-"):
        return -parse_duration(text.removeprefix("-"))
    return parse_duration(text)


def in_us(duration: timedelta) -> int:
    """Return a duration in microseconds."""
    return duration // timedelta(microseconds=1)


def in_ms(duration: timedelta) -> int:
    """Return a duration in milliseconds, rounded down."""
    return duration // timedelta(milliseconds=1)


def format_signed_duration(value: timedelta) -> str:
    """Return the canonical text of a duration that may be negative."""
    return f"-{format_duration(-value)}" if value < timedelta(0) else format_duration(value)


def format_duration(value: timedelta) -> str:
    """Return the canonical text of a duration, in the largest unit that divides it: 90 minutes -> `90m`."""
    microseconds = in_us(value)
    for unit in ("d", "h", "m", "s", "ms", "us"):
        if microseconds and microseconds % _MICROSECONDS[unit] == 0:
            return f"{microseconds // _MICROSECONDS[unit]}{unit}"
    return "0s"


def parse_size(text: object) -> int:
    """Parse a size in bytes: a whole number, optionally with a unit (KB is 1000, KiB is 1024).

    Raises:
        ValueError: any other value.
    """
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"expected a size such as 64MB, got {text!r}")
    number, unit = int(match[1]), match[2]
    return number * _BYTES[unit]
