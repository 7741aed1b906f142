"""Parse the bounds of an interval join, of which the upper one may be a column of the left row."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from milepost.language.times import format_signed_duration, parse_signed_duration

_NAME = r"(`[^`]+`|[A-Za-z_]\w*)"
_DIFFERENCE = re.compile(rf"\s*{_NAME}\s*-\s*{_NAME}\s*")
_BARE = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class RowBound:
    """An upper bound that differs per left row: a column of the row less its event time.

    Attributes:
        column: left column with the greatest event time of a matching right row. event_time: the left event time.
    """

    column: str
    event_time: str

    def __str__(self) -> str:
        return " - ".join(name if _BARE.fullmatch(name) else f"`{name}`" for name in (self.column, self.event_time))


Bound: TypeAlias = timedelta | RowBound


def parse_bound(value: object) -> Bound:
    """Parse `30m`, `-5m` or `expires - at`. Raises ValueError."""
    if isinstance(value, (timedelta, RowBound)):
        return value
    match = _DIFFERENCE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return parse_signed_duration(value)
    return RowBound(match[1].strip("`"), match[2].strip("`"))


def bound_text(bound: Bound) -> str:
    """Return the text of a bound, which `parse_bound` reads back."""
    return str(bound) if isinstance(bound, RowBound) else format_signed_duration(bound)


BoundText = Annotated[
    Bound,
    BeforeValidator(parse_bound),
    PlainSerializer(bound_text, return_type=str),
    WithJsonSchema({"type": "string", "description": "30s -5m 2h -3d, or for the upper bound: expires - at"}),
]
