"""Time zones from the package `tzdata`, equal on every machine.

A digest identifies the version of a zone's rules.
"""

from __future__ import annotations

import hashlib
import io
import re
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

_NAME = re.compile(r"(?=.{1,64}$)[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
"""The longest name in `tzdata` has 32 characters. A bound avoids file names that the system refuses."""


def zone_data(name: str) -> bytes:
    """Return the compiled rules of a time zone. Raises ValueError if it does not exist."""
    file = files("tzdata.zoneinfo").joinpath(*name.split("/")) if _NAME.fullmatch(name) else None
    data = file.read_bytes() if file is not None and file.is_file() else b""
    if not data.startswith(b"TZif"):
        raise _no_time_zone(name)
    return data


def system_zone(name: str) -> ZoneInfo:
    """Return a time zone with the machine's rules, as Airflow's schedules use them. Raises ValueError."""
    try:
        if _NAME.fullmatch(name):
            return ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        pass
    raise _no_time_zone(name)


def _no_time_zone(name: str) -> ValueError:
    shown = repr(name) if len(name) <= 64 else f"{name[:64]!r}…"
    return ValueError(f"{shown} is not a time zone; use a name such as UTC or Europe/Berlin")


def zone_digest(name: str) -> str:
    """Return a short digest of the rules of a time zone. Raises ValueError."""
    return hashlib.sha256(zone_data(name)).hexdigest()[:16]


@lru_cache(maxsize=64)
def zone_of(data: bytes) -> ZoneInfo:
    """Build a time zone from compiled rules."""
    return ZoneInfo.from_file(io.BytesIO(data))
