"""Totals: the one row of an aggregate without key columns.

It exists before the first input row and is never deleted, as in a query without GROUP BY: over no rows, count(*) is 0
and a sum is null. In state the row has a reserved key column. Its routing key has no columns, so all rows go to one
subtask, folded before they are sent::

    __total  count(*)  sum(x)
    true     0         null
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from milepost.operators.contract import TOTAL_COLUMN, KeyedState


def state_key_fields(key: Sequence[str], schema: pa.Schema) -> list[pa.Field]:
    """Return the key columns of state: the operator's key, or the key column of totals."""
    return [schema.field(name) for name in key] or [pa.field(TOTAL_COLUMN, pa.bool_())]


def state_key(key: Sequence[str]) -> tuple[str, ...]:
    """Return the names of `state_key_fields`."""
    return tuple(key) or (TOTAL_COLUMN,)


def initial_totals(key: Sequence[str], state: KeyedState, nothing: pa.Table) -> pa.Table | None:
    """Create the row of totals and return it. None: the row already exists, or belongs to another subtask.

    Args:
        nothing: accumulators over no rows.
    """
    if key:
        return None
    total = state.group(pa.table({TOTAL_COLUMN: [True]}))
    if not state.owns(total.keys).all() or total.find()[1].all():
        return None
    row = pa.table([*total.keys.columns, *nothing.columns], names=[TOTAL_COLUMN, *nothing.column_names])
    total.put(row)
    return row
