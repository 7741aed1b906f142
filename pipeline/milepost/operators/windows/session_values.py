"""Values of sessions: they move with a session that has become part of another one, and go when it is forgotten.

When a session that grows is forgotten is said by its own row alone: its values, which may be many, are not written
again with each row that joins it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from milepost.jobspec.graph import WINDOW_START
from milepost.operators.aggregation.distinct_values import VALUE_COLUMN
from milepost.operators.contract import Ints, KeyedState
from milepost.operators.rows.columns import distinct_rows, group_rows


def move_values(state: KeyedState, sessions: pa.Table, starts: pa.Array) -> Ints:
    """Have the values of sessions be of those that begin at `starts`; return how many of each are new there.

    Args:
        sessions: routing key and start of each; none of `starts` is among theirs.
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
    """Remove the values of sessions: routing key and start of each."""
    state.delete(_values_of(state, sessions)[0])


def _values_of(state: KeyedState, sessions: pa.Table) -> tuple[pa.Table, Ints]:
    """Return the state rows of the values of sessions, each with the number of its session."""
    routing_key: Sequence[str] = [name for name in sessions.column_names if name != WINDOW_START]
    found = state.lookup_all(distinct_rows(sessions.select(routing_key)))
    values = found.take([*sessions.column_names, VALUE_COLUMN])
    codes, _ = group_rows(pa.concat_tables([sessions, values.select(sessions.column_names).cast(sessions.schema)]))
    owners = codes[sessions.num_rows :]
    own = owners < sessions.num_rows
    return values.filter(pa.array(own)), owners[own]
