"""Rows of state whose time has come: what one firing emits and no earlier one did."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.contract import KeyedState


def due_since_firing(state: KeyedState, column: str, after_us: int | None, until_us: int) -> pa.Table:
    """Return state rows whose time in `column` lies behind a firing watermark, if there was one, and up to the next."""
    rows = state.due(until_us).filter(pc.field(column) <= until_us)
    return rows if after_us is None else rows.filter(pc.field(column) > after_us)
