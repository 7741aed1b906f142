"""Convert keys and state to the Python values that a process class receives."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from milepost.language.times import python_values, zoned_text
from milepost.operators.contract import OperatorFailed


def values_for_python(uid: str, what: str, column: pa.ChunkedArray, name: str) -> list[Any]:
    """Return the values of a column of keys or state.

    Args:
        what: kind of column (key or state), for the message.
    Raises:
        OperatorFailed: Python has no date or datetime of that year.
    """

    def refuse(item: pa.Scalar) -> None:
        raise OperatorFailed(
            uid,
            f"{what} column {name} has {zoned_text(item)} ({item.type}), and on_rows and on_timer get Python values, "
            "which have the years 1 to 9999 only. Remove such rows in a `sql` operator upstream, or use on_batch, "
            "which gets Arrow tables",
        )

    return python_values(column, refuse)
