"""Values that `count(distinct x)` has counted: a state table per argument, one row per key and value.

The row that brings a new value is flagged, and the flags are counted. Counts therefore do not depend on how rows are
cut, or on which row of a value arrives first:

    key a, values   x     y     x     x in the next epoch
    flag            true  true  false false                  count(distinct) = 2
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.language import AggregateCall, argument_label
from milepost.operators.aggregation.accumulators import typed_by
from milepost.operators.contract import Ints, KeyedState, StateTable
from milepost.operators.rows.columns import key_columns
from milepost.protocol.records import EXPIRES_COLUMN

VALUE_COLUMN = "__value"
"""State column of the value. Nulls are not counted and therefore not stored."""


def flag_of(table: str) -> str:
    """Return the name of the boolean column that flags rows with a new value of a table."""
    return f"__first of {table}"


def counted_name(call: AggregateCall) -> str:
    """Return the name of the state column of a distinct count."""
    return f"count(distinct {argument_label(call.column, call.where)})"


class DistinctValues:
    """Distinct values of one column, optionally filtered.

    Attributes:
        name: name of its state table.
        counted: state column of their number.
    """

    def __init__(self, call: AggregateCall, data_type: pa.DataType) -> None:
        self._column, self._where, self._type = str(call.column), call.where, data_type
        self.name = str(call.value_table)
        self.counted = counted_name(call)

    def table(self, key: Sequence[pa.Field], routing_key: Sequence[str], *, expires: bool) -> StateTable:
        """Return the declaration of its table: key columns, value, and optionally the expiry."""
        fields = [*key, typed_by(pa.field(VALUE_COLUMN, self._type), self._column)]
        times = [pa.field(EXPIRES_COLUMN, pa.int64())] if expires else []
        return StateTable(tuple(field.name for field in fields), tuple(routing_key), pa.schema([*fields, *times]))

    def flagged(self, keys: pa.Table, rows: pa.Table, state: KeyedState, expires: Ints | None) -> pa.Table:
        """Return the rows with flags for new values of their keys. Store these values."""
        values = rows.column(self._column)
        counted = pc.is_valid(values).to_numpy().astype(np.bool_)
        if self._where is not None:
            counted &= pc.fill_null(rows.column(self._where), False).to_numpy().astype(np.bool_)
        places = np.flatnonzero(counted)
        flags = np.zeros(rows.num_rows, dtype=np.bool_)
        if places.size:
            values = key_columns(rows, [self._column]).column(0)
            counted_values = keys.append_column(VALUE_COLUMN, values).take(pa.array(places))
            occurring = state.group(counted_values)
            _, known = occurring.find()
            first = places[occurring.first[~known]]
            fresh = occurring.keys.filter(pa.array(~known))
            if expires is not None:
                fresh = fresh.append_column(EXPIRES_COLUMN, pa.array(expires[first]))
            occurring.put(fresh, ~known)
            flags[first] = True
        return rows.append_column(flag_of(self.name), pa.array(flags))
