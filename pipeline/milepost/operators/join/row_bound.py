"""Parse the bounds of an interval join: constants, and columns of the left row."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    """A bound that differs per left row: a column of the row less its event time.

    Attributes:
        column: left column with the greatest event time of a matching right row, or for a lower bound the least one.
        event_time: the left event time.
    """

    column: str
    event_time: str

    def __str__(self) -> str:
        return " - ".join(name if _BARE.fullmatch(name) else f"`{name}`" for name in (self.column, self.event_time))


@dataclass(frozen=True, slots=True)
class BothBounds:
    """A constant bound and one of each left row. A pair satisfies both, and the constant one bounds the state."""

    constant: timedelta
    row: RowBound


Bound: TypeAlias = timedelta | RowBound | BothBounds


def constant_of(bound: Bound) -> timedelta | None:
    """Return the constant part of a bound."""
    if isinstance(bound, BothBounds):
        return bound.constant
    return bound if isinstance(bound, timedelta) else None


def row_bound_of(bound: Bound) -> RowBound | None:
    """Return the part of a bound that differs per left row."""
    if isinstance(bound, BothBounds):
        return bound.row
    return bound if isinstance(bound, RowBound) else None


def parse_bound(value: object) -> Bound:
    """Parse `30m`, `-5m`, `expires - at`, or a list of a constant and a column. Raises ValueError."""
    if isinstance(value, (timedelta, RowBound, BothBounds)):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str):
        parts = [parse_bound(one) for one in value]
        kinds = [timedelta, RowBound]
        if [type(one) for one in parts] != kinds:
            raise ValueError(f'expected a constant and a column, such as [1h, "expires - at"], got {value}')
        return BothBounds(*parts)  # type: ignore[arg-type]
    match = _DIFFERENCE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return parse_signed_duration(value)
    return RowBound(match[1].strip("`"), match[2].strip("`"))


def bound_text(bound: Bound) -> str | list[str]:
    """Return the text of a bound, or its two texts, which `parse_bound` reads back."""
    if isinstance(bound, BothBounds):
        return [format_signed_duration(bound.constant), str(bound.row)]
    return str(bound) if isinstance(bound, RowBound) else format_signed_duration(bound)


BoundText = Annotated[
    Bound,
    BeforeValidator(parse_bound),
    PlainSerializer(bound_text, return_type=str | list[str]),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}],
            "description": "30s -5m 2h -3d, for the upper bound: expires - at, or both: [1h, expires - at]",
        }
    ),
]
