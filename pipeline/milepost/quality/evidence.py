"""Evidence is what a person needs to see of an expectation that is not met: refused rows, and the observed value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from milepost.jobspec.values.times.any_year import zoned_text

_MAX_TEXT = 200
"""Of a value: what is longer ends in an ellipsis."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What refused an epoch, as JSON.

    Attributes:
        rows: some of the failing ones, in the order of the table: columns of the expectation and the sink's key.
        observed_value: of an aggregate or the whole table; None for one that looks at single rows.
    """

    rows: tuple[Mapping[str, Any], ...] = ()
    observed_value: Any = None


def rows_at(table: pa.Table, positions: Sequence[int], columns: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    """Return some rows of a table, as JSON, with those of the columns that it has."""
    shown = [name for name in columns if name in table.column_names]
    return tuple({name: json_value(_value(table[name][at])) for name in shown} for at in positions)


def json_value(value: Any) -> Any:
    """Return the value as JSON has it.

    A number or truth value as it is, NaN and all else as text, cut where it is long.
    """
    if getattr(value, "ndim", None) == 0:
        value = value.item()  # of numpy
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def _value(scalar: pa.Scalar) -> Any:
    """Return the value as Python has it; where Python has none, such as for a year beyond 9999, as text."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, LookupError):
        is_time = pa.types.is_timestamp(scalar.type) or pa.types.is_date(scalar.type)
        return zoned_text(scalar) if is_time else f"{getattr(scalar, 'value', 'a value')} as {scalar.type}"
