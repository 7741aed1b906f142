"""Time zones as the package `tzdata` has them, never as the machine does: the same everywhere, and told by a digest."""

from __future__ import annotations

import hashlib
import io
import re
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

_NAME = re.compile(r"(?=.{1,64}$)[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
"""The longest name of `tzdata` has 32 characters; one of hundreds is no file name at all."""


def zone_data(name: str) -> bytes:
    """Return the compiled rules of a time zone. Raises ValueError: there is none of this name."""
    place = files("tzdata.zoneinfo").joinpath(*name.split("/")) if _NAME.fullmatch(name) else None
    data = place.read_bytes() if place is not None and place.is_file() else b""
    if not data.startswith(b"TZif"):
        raise _no_time_zone(name)
    return data


def system_zone(name: str) -> ZoneInfo:
    """Return a time zone by the rules of the machine, as Airflow's schedules do. Raises ValueError: there is none."""
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
    """Return the time zone of compiled rules."""
    return ZoneInfo.from_file(io.BytesIO(data))
