"""Retractions say by how much an output has changed: rows that are taken back, weight -1, and new ones, weight 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.jobspec.graph.edges import DELETED_COLUMN
from milepost.operators.contract import Ints, OperatorFailed
from milepost.operators.rows.row_order import same_values
from milepost.protocol.records.state_columns import WEIGHT_COLUMN

NONE: Ints = np.empty(0, dtype=np.int64)
"""The places of no rows."""


def retractions(before: pa.Table, places_before: Ints, now: pa.Table, places: Ints) -> pa.Table:
    """Return rows as they were and as they are, key after key; those that are as they were are left out.

    Args:
        before, now: of each key at most one row. places_before, places: the number of the key of each.

    >>> before, now = pa.table({"k": ["b", "c", "d"], "n": [1, 2, 4]}), pa.table({"k": ["a", "b", "c"], "n": [9, 1, 3]})
    >>> changes = retractions(before, np.array([1, 2, 3]), now, np.array([0, 1, 2]))
    >>> [tuple(row.values()) for row in changes.to_pylist()]
    [('a', 9, 1), ('c', 2, -1), ('c', 3, 1), ('d', 4, -1)]
    """
    at = np.full(max(places_before.max(initial=-1), places.max(initial=-1)) + 1, -1)
    at[places] = np.arange(len(places))
    at = at[places_before]
    met = np.flatnonzero(at >= 0)
    were = before if len(met) == len(at) else before.take(pa.array(met))
    same = met[same_values(were, now.take(pa.array(at[met])))]
    goes, comes = np.ones(len(places_before), dtype=np.bool_), np.ones(len(places), dtype=np.bool_)
    goes[same] = comes[at[same]] = False
    return with_weights(before.filter(pa.array(goes)), places_before[goes], now.filter(pa.array(comes)), places[comes])


def with_weights(before: pa.Table, places_before: Ints, now: pa.Table, places: Ints) -> pa.Table:
    """Return rows that are taken back and new ones with their weights, by their places, -1 first."""
    weights = np.repeat(np.array([-1, 1], dtype=np.int64), [before.num_rows, now.num_rows])
    rows = pa.concat_tables([before, now]).append_column(WEIGHT_COLUMN, pa.array(weights))
    order = np.argsort(np.concatenate([places_before, places]), kind="stable")
    return rows.take(pa.array(order))


def check_settled(uid: str, key: Sequence[str], short: pa.Table) -> None:
    """Raises OperatorFailed: a row was taken back that never came, and nothing is in flight that may bring it.

    Args:
        short: the state rows of which more were taken back than came.
    """
    if short.num_rows:
        which = ", ".join(f"{name} = {short.column(name)[0]}" for name in key) or "all rows"
        raise OperatorFailed(
            uid,
            f"rows of {short.num_rows} keys or values were taken back that never came, as of {which}, and nothing is "
            "in flight: its input makes other rows than before; roll back, and give this operator and all behind it "
            "new uids",
        )


def as_insertions(rows: pa.Table) -> pa.Table:
    """Return rows of which none is a delete as rows that come, each once."""
    kept = [name for name in rows.column_names if name != DELETED_COLUMN]
    return rows.select(kept).append_column(WEIGHT_COLUMN, pa.array(np.ones(rows.num_rows, dtype=np.int64)))


def count_rows(rows: pa.Table) -> int:
    """Return for how many rows these stand: of mode retract the sum of their weights, whatever their sign."""
    if WEIGHT_COLUMN not in rows.column_names:
        return int(rows.num_rows)
    return int(pc.sum(pc.abs(rows.column(WEIGHT_COLUMN))).as_py() or 0)
