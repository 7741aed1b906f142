"""Counts of true and of false rows per key, from which `any` and `every` over updates are read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.aggregation.accumulators import Argument, Count, Grouped


class BoolCount:
    """Counts the rows in which a column is true, or those in which it is false. State: one int64."""

    def __init__(self, argument: Argument, value: bool) -> None:
        self._column, self._value = str(argument.column), value
        self._count = Count(argument, bool_count_name(argument, value))
        self.fields, self.merges = self._count.fields, True

    def update(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        keep = pc.fill_null(pc.equal(grouped.rows.column(self._column), self._value), False)
        codes = grouped.codes[np.asarray(keep)]
        return self._count.update(previous, Grouped(grouped.rows.filter(keep), codes, grouped.count))

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        return self._count.merge(previous, partials)

    def negated(self, partials: pa.Table) -> list[pa.Array]:
        return self._count.negated(partials)


def bool_count_name(argument: Argument, value: bool) -> str:
    """Return what the number of true rows, or of false ones, is called in state."""
    return f"{'true' if value else 'false'}({argument.label})"


def any_or_every(rows: pa.Table, argument: Argument, function: str) -> pa.Array:
    """Return whether a row is true, or none is false; null where neither is."""
    some_true, some_false = (rows.column(bool_count_name(argument, value)).to_numpy() > 0 for value in (True, False))
    return pa.array(some_true if function == "any" else ~some_false, pa.bool_(), mask=~(some_true | some_false))
