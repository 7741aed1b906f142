"""Stored rows that say that a row is deleted, so that an older row cannot revive it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.contract import Bools, GroupedKeys
from milepost.operators.rows.row_order import last_rows

TOMBSTONE_COLUMN = "__tombstone"
"""State column (bool): the row is a delete."""


def are_tombstones(state_rows: pa.Table) -> Bools:
    """Return which rows are tombstones. Null, of a row stored before there were deletes, is none."""
    if TOMBSTONE_COLUMN not in state_rows.column_names:
        return np.zeros(state_rows.num_rows, dtype=np.bool_)
    return pc.fill_null(state_rows.column(TOMBSTONE_COLUMN), False).to_numpy()


def with_tombstone_flags(state_rows: pa.Table) -> pa.Table:
    """Return rows without nulls in the tombstone column, if there is one."""
    if TOMBSTONE_COLUMN not in state_rows.column_names or not state_rows.column(TOMBSTONE_COLUMN).null_count:
        return state_rows
    at = state_rows.column_names.index(TOMBSTONE_COLUMN)
    return state_rows.set_column(at, state_rows.field(at), pa.chunked_array([pa.array(are_tombstones(state_rows))]))


def without_payload(state_rows: pa.Table, payload: Sequence[str]) -> pa.Table:
    """Return rows with null in the tombstones' columns of `payload`."""
    deleted = state_rows.column(TOMBSTONE_COLUMN)
    if not pc.any(deleted).as_py():
        return state_rows
    stays = pc.invert(deleted)
    for name in payload:
        column = pc.if_else(stays, state_rows.column(name), None)
        state_rows = state_rows.set_column(state_rows.column_names.index(name), state_rows.field(name), column)
    return state_rows


def put_last_rows(
    occurring: GroupedKeys, rows: pa.Table, stored: pa.Table, known: Bools, order_by: Sequence[str]
) -> pa.Table:
    """Store the last of each key's new and stored rows, in the order of `last_rows`. Return the rows that are new.

    Args:
        occurring: the keys of `rows`. stored, known: their state, as `occurring.find` returns it.
    """
    # The stored row comes last. It wins against an equal row, so the key does not count as changed.
    both = pa.concat_tables([rows, with_tombstone_flags(stored.filter(pa.array(known)))])
    newest = last_rows(both, np.concatenate([occurring.codes, np.flatnonzero(known)]), order_by)
    newer = newest < rows.num_rows
    changed = rows.take(pa.array(newest[newer]))
    occurring.put(changed, newer)
    return changed
