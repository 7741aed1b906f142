"""Times of any year: Python has those of the years 1 to 9999 only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def scalar_text(time: pa.Scalar) -> str:
    """Return a timestamp of Arrow, without its zone, or a date as ISO 8601."""
    import pyarrow as pa

    return iso_text(time.value, time.type.unit if pa.types.is_timestamp(time.type) else "D")


def iso_text(value: int, unit: str) -> str:
    """Return a time, without its zone, as ISO 8601.

    Args:
        value: since 1970. unit: of NumPy: s, ms, us, ns, or D of a date.
    """
    import numpy

    number = numpy.array(max(value, 1 - 2**63), numpy.int64)  # it takes the least one for no time
    return str(number.astype(f"datetime64[{unit}]"))


def zoned_text(time: pa.Scalar) -> str:
    """Return a timestamp of Arrow, with `Z` if it is in UTC, or a date as ISO 8601."""
    import pyarrow as pa

    return scalar_text(time) + ("Z" if pa.types.is_timestamp(time.type) and time.type.tz else "")


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as `python_values` returns the values of each column."""
    columns = [python_values(column) for column in table.columns]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def python_values(column: pa.ChunkedArray | pa.Array, beyond: Callable[[pa.Scalar], Any] = zoned_text) -> list[Any]:
    """Return the values of a column as Python has them.

    Args:
        beyond: what stands for a date or timestamp, also in a nested value, whose year Python lacks.
    """
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        values = [_python_value(item, beyond) for item in column]
    return values


def _python_value(item: pa.Scalar, beyond: Callable[[pa.Scalar], Any]) -> Any:
    import pyarrow as pa

    try:
        return item.as_py()
    except (OverflowError, ValueError):
        if isinstance(item, pa.StructScalar):
            return {name: _python_value(inner, beyond) for name, inner in item.items()}
        if isinstance(item, pa.ListScalar):
            return [_python_value(inner, beyond) for inner in item.values]
        return beyond(item)
