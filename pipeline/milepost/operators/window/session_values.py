"""Distinct values of sessions, moved when sessions merge and deleted with their session.

Only the row of a session stores its expiry. Its values, which may be many, are therefore not rewritten for each row
that extends it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from milepost.operators.aggregation.distinct_values import VALUE_COLUMN
from milepost.operators.base.edges import WINDOW_START
from milepost.operators.contract import Ints, KeyedState
from milepost.operators.rows.columns import distinct_rows, group_rows


def move_values(state: KeyedState, sessions: pa.Table, starts: pa.Array) -> Ints:
    """Move the values of sessions to those that start at `starts`. Return how many of each are new there.

    Session 1 has the values {x, y} and moves to a session that already has {x}. Then y is moved, and 1 is returned.

    Args:
        sessions: routing key and start of each session. None of them has a start in `starts`.
    """
    values, owners = _values_of(state, sessions)
    if not values.num_rows:
        return np.zeros(sessions.num_rows, dtype=np.int64)
    state.delete(values)
    at = values.column_names.index(WINDOW_START)
    moved = values.set_column(at, values.schema.field(at), starts.take(pa.array(owners)))
    occurring = state.group(moved)
    _, known = occurring.find()
    occurring.put(occurring.keys.filter(pa.array(~known)), ~known)
    return np.bincount(owners[occurring.first[~known]], minlength=sessions.num_rows).astype(np.int64)


def forget_values(state: KeyedState, sessions: pa.Table) -> None:
    """Delete the values of sessions, which are given by routing key and start."""
    state.delete(_values_of(state, sessions)[0])


def _values_of(state: KeyedState, sessions: pa.Table) -> tuple[pa.Table, Ints]:
    """Return the state rows of the sessions' values, each with the index of its session."""
    routing_key: Sequence[str] = [name for name in sessions.column_names if name != WINDOW_START]
    found = state.lookup_all(distinct_rows(sessions.select(routing_key)))
    values = found.take([*sessions.column_names, VALUE_COLUMN])
    codes, _ = group_rows(pa.concat_tables([sessions, values.select(sessions.column_names).cast(sessions.schema)]))
    owners = codes[sessions.num_rows :]
    own = owners < sessions.num_rows
    return values.filter(pa.array(own)), owners[own]
