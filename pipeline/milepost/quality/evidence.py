"""Evidence for an expectation that is not met: failing rows and the observed value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from milepost.language.times import zoned_text

_MAX_TEXT = 200
"""Longer values are cut and end in an ellipsis."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence for one expectation, as JSON values.

    Attributes:
        rows: some of the failing rows, in table order: the columns of the expectation and the sink's key.
        observed_value: value of an aggregate or table expectation; None for one that checks single rows.
    """

    rows: tuple[Mapping[str, Any], ...] = ()
    observed_value: Any = None


def rows_at(table: pa.Table, positions: Sequence[int], columns: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    """Return some rows of a table as JSON values, with those columns that the table has."""
    shown = [name for name in columns if name in table.column_names]
    return tuple({name: json_value(_value(table[name][at])) for name in shown} for at in positions)


def json_value(value: Any) -> Any:
    """Convert a value for JSON: finite numbers and booleans unchanged, everything else as text, cut if it is long."""
    if getattr(value, "ndim", None) == 0:
        value = value.item()  # a numpy scalar
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def _value(scalar: pa.Scalar) -> Any:
    """Return the Python value, or text if Python cannot represent it, such as a year beyond 9999."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, LookupError):
        is_time = pa.types.is_timestamp(scalar.type) or pa.types.is_date(scalar.type)
        return zoned_text(scalar) if is_time else f"{getattr(scalar, 'value', 'a value')} as {scalar.type}"
