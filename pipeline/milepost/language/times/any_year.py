"""Convert Arrow times of any year. Python's datetime covers only years 1 to 9999."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def scalar_text(time: pa.Scalar) -> str:
    """Return an Arrow timestamp, without its zone, or an Arrow date as ISO 8601."""
    import pyarrow as pa

    return iso_text(time.value, time.type.unit if pa.types.is_timestamp(time.type) else "D")


def iso_text(value: int, unit: str) -> str:
    """Return a time, without its zone, as ISO 8601.

    Args:
        value: units since 1970-01-01. unit: NumPy unit: s, ms, us, ns, or D for a date.
    """
    import numpy

    number = numpy.array(max(value, 1 - 2**63), numpy.int64)  # NumPy reads the smallest int64 as "not a time"
    return str(number.astype(f"datetime64[{unit}]"))


def zoned_text(time: pa.Scalar) -> str:
    """Return an Arrow timestamp, with `Z` if it is in UTC, or an Arrow date as ISO 8601."""
    import pyarrow as pa

    return scalar_text(time) + ("Z" if pa.types.is_timestamp(time.type) and time.type.tz else "")


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table as dicts, with values as in `python_values`."""
    columns = [python_values(column) for column in table.columns]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def python_values(column: pa.ChunkedArray | pa.Array, fallback: Callable[[pa.Scalar], Any] = zoned_text) -> list[Any]:
    """Return the values of a column as Python objects.

    Args:
        fallback: converts dates and timestamps, also in nested values, that Python's datetime cannot represent.
    """
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        values = [_python_value(item, fallback) for item in column]
    return values


def _python_value(item: pa.Scalar, fallback: Callable[[pa.Scalar], Any]) -> Any:
    import pyarrow as pa

    try:
        return item.as_py()
    except (OverflowError, ValueError):
        if isinstance(item, pa.StructScalar):
            return {name: _python_value(inner, fallback) for name, inner in item.items()}
        if isinstance(item, pa.ListScalar):
            return [_python_value(inner, fallback) for inner in item.values]
        return fallback(item)
