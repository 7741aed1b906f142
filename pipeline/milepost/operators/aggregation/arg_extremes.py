"""Accumulator of arg_min and arg_max."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from milepost.operators.aggregation.accumulators import Argument, Grouped, typed_by
from milepost.operators.contract import Ints
from milepost.operators.rows.row_order import sorted_rows

_VALUE, _BY = "value", "by"


class ArgExtreme:
    """Store the value of the first or last row, ordered by the `by` column and then by the value.

    The order of arrival has no effect. Rows with a null in `by` do not count. As in Spark, a null value is the smallest
    and NaN is the largest number. State: the `by` column and the value. For example, arg_max(v by t)::

        rows (v, t)    ("a", 1)  ("c", 2)  ("b", 2)  ("z", null)
        result         "c"       both "c" and "b" have t = 2, and "c" is the greater value
    """

    def __init__(self, argument: Argument, by: str, types: tuple[pa.DataType, pa.DataType], largest: bool) -> None:
        self.column, self.by, self.largest = str(argument.column), by, largest
        self.name = arg_extreme_name(argument, by, largest)
        value_type, by_type = types
        self.fields: tuple[pa.Field, ...] = (
            typed_by(pa.field(f"{self.name}.by", by_type), by),
            typed_by(pa.field(self.name, value_type), self.column),
        )
        self._schema = pa.schema([(_VALUE, value_type), (_BY, by_type)])
        self.merges = True

    def update(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        rows = grouped.rows
        return self._fold(previous, rows.column(self.column), rows.column(self.by), grouped.codes)

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        rows = partials.rows
        return self._fold(previous, rows.column(self.name), rows.column(f"{self.name}.by"), partials.codes)

    def _fold(self, previous: pa.Table, values: pa.ChunkedArray, by: pa.ChunkedArray, codes: Ints) -> list[pa.Array]:
        stored = self._candidates(previous.column(self.name), previous.column(f"{self.name}.by"))
        rows = pa.concat_tables([stored, self._candidates(values, by)])
        owners = np.concatenate([np.arange(previous.num_rows), codes])
        counts = np.asarray(rows.column(_BY).is_valid())
        rows, owners = rows.filter(pa.array(counts)), owners[counts]
        order, _ = sorted_rows(rows, owners, ((_BY, False),))
        grouped = owners[order]
        ends = np.flatnonzero(grouped[1:] != grouped[:-1]) if len(order) else np.empty(0, dtype=np.int64)
        places = np.append(ends, len(order) - 1) if self.largest else np.append(0, ends + 1)
        chosen = np.zeros(previous.num_rows, dtype=np.int64)
        seen = np.zeros(previous.num_rows, dtype=np.bool_)
        if len(order):
            chosen[grouped[places]] = order[places]
            seen[grouped[places]] = True
        picked = rows.take(pa.array(chosen, mask=~seen)) if len(order) else None
        return [
            pa.nulls(previous.num_rows, self._schema.field(name).type) if picked is None else _array(picked, name)
            for name in (_BY, _VALUE)
        ]

    def _candidates(self, values: pa.ChunkedArray, by: pa.ChunkedArray) -> pa.Table:
        return pa.table([values, by], names=self._schema.names).cast(self._schema)


def arg_extreme_name(argument: Argument, by: str, largest: bool) -> str:
    """Return the name of the value's state column."""
    return f"{'arg_max' if largest else 'arg_min'}({argument.label} by `{by}`)"


def _array(rows: pa.Table, name: str) -> pa.Array:
    return pa.concat_arrays(rows.column(name).chunks)
