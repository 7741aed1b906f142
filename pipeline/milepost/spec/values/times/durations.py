"""Durations (`30s 5m 2h 3d`) and sizes (`64MB`) as a spec writes them."""

from __future__ import annotations

import re
from datetime import timedelta

_DURATION = re.compile(r"(\d{1,9})(ms|s|m|h|d)")
_SIZE = re.compile(r"(\d{1,15})\s*(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)")
_LONGEST_DAYS = 36_500
_MICROSECONDS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_BYTES: dict[str, int] = {"B": 1}
_BYTES |= {f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)}
_BYTES |= {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)}


def parse_duration(text: object) -> timedelta:
    """Return the length of time that `text` names: a whole number and one of ms, s, m, h, d.

    Raises:
        ValueError: anything else; a bare number too, because its unit would be a guess.
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


def parse_signed_duration(text: object) -> timedelta:
    """Return a length of time, which may go back: a duration, perhaps with a minus sign. Raises ValueError."""
    if isinstance(text, str) and text.startswith("-"):
        return -parse_duration(text.removeprefix("-"))
    return parse_duration(text)


def in_us(duration: timedelta) -> int:
    """Return a length of time in microseconds."""
    return duration // timedelta(microseconds=1)


def in_ms(duration: timedelta) -> int:
    """Return a length of time in milliseconds."""
    return duration // timedelta(milliseconds=1)


def format_signed_duration(value: timedelta) -> str:
    """Return the one canonical text of a length of time that may go back."""
    return f"-{format_duration(-value)}" if value < timedelta(0) else format_duration(value)


def format_duration(value: timedelta) -> str:
    """Return the one canonical text of a duration: the largest unit that divides it."""
    microseconds = in_us(value)
    for unit in ("d", "h", "m", "s", "ms"):
        if microseconds and microseconds % _MICROSECONDS[unit] == 0:
            return f"{microseconds // _MICROSECONDS[unit]}{unit}"
    return "0s"


def parse_size(text: object) -> int:
    """Return bytes: a whole number, or a number with a unit (KB is 1000, KiB is 1024).

    Raises:
        ValueError: anything else.
    """
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"expected a size such as 64MB, got {text!r}")
    number, unit = int(match[1]), match[2]
    return number * _BYTES[unit]
