"""State rows with timers that fall due between two firings."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.contract import KeyedState


def due_since_firing(state: KeyedState, column: str, after_us: int | None, until_us: int) -> pa.Table:
    """Return the state rows with `after_us` < `column` <= `until_us`, so each row fires once.

    Timers 10, 20 and 30 with firings at 20 and 30: the first returns 10 and 20, the second only 30.
    `after_us` is None before the first firing.
    """
    rows = state.due(until_us).filter(pc.field(column) <= until_us)
    return rows if after_us is None else rows.filter(pc.field(column) > after_us)
