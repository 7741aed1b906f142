"""Retractions: output changes as old rows of weight -1 and new rows of weight 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.base.edges import DELETED_COLUMN
from milepost.operators.contract import Ints, OperatorFailed, RowsOfKeys
from milepost.operators.rows.columns import group_rows, key_columns
from milepost.operators.rows.row_order import same_values, sorted_rows
from milepost.protocol.records import WEIGHT_COLUMN

NONE: Ints = np.empty(0, dtype=np.int64)
"""Positions of an empty table."""


def retractions(before: pa.Table, places_before: Ints, now: pa.Table, places: Ints) -> pa.Table:
    """Return the net changes per key: old rows with weight -1, new rows with weight 1.

    A row that did not change nets out, as key b does here. Key a is new, c has another value, and d is deleted.

    Args:
        before, now: at most one row per key. places_before, places: the key number of each row.

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


def changed_rows(before: pa.Table, places_before: Ints, now: pa.Table, places: Ints) -> tuple[pa.Table, pa.Table]:
    """Return (the net changes per key as `retractions`, the former rows of keys that have no row now)."""
    left = before.filter(pa.array(~np.isin(places_before, places)))
    return retractions(before, places_before, now, places), left


def places_by_key(before: pa.Table, of_before: Ints, now: pa.Table, of_now: Ints) -> tuple[Ints, Ints]:
    """Return the place of each former and current row by its owner and key, equal for equal ones.

    Args:
        before, now: keys of the rows within their owners. of_before, of_now: the owner of each row.
    """
    order, differs = sorted_rows(pa.concat_tables([before, now]), np.concatenate([of_before, of_now]), ())
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.cumsum(differs) - 1
    return places[: before.num_rows], places[before.num_rows :]


def present_rows(found: RowsOfKeys, columns: Sequence[str]) -> tuple[pa.Table, Ints]:
    """Return the rows of a multi-row table that are present, and the number of each one's key."""
    weights = found.take([WEIGHT_COLUMN]).column(WEIGHT_COLUMN).to_numpy()
    positions = np.flatnonzero(weights > 0)  # below 0 a row is absent
    return found.take(columns, positions), found.owners[positions]


def with_weights(before: pa.Table, places_before: Ints, now: pa.Table, places: Ints) -> pa.Table:
    """Return retracted and new rows with their weights, ordered by place, retractions first."""
    weights = np.repeat(np.array([-1, 1], dtype=np.int64), [before.num_rows, now.num_rows])
    rows = pa.concat_tables([before, now]).append_column(WEIGHT_COLUMN, pa.array(weights))
    order = np.argsort(np.concatenate([places_before, places]), kind="stable")
    return rows.take(pa.array(order))


def check_settled(uid: str, key: Sequence[str], short: pa.Table) -> None:
    """Raises OperatorFailed: a retraction has no matching insertion, and no row in flight can supply one.

    Args:
        short: state rows with more retractions than insertions.
    """
    if short.num_rows:
        first = ", ".join(f"{name} = {short.column(name)[0]}" for name in key) or "the only key"
        raise OperatorFailed(
            uid,
            f"expected no more retractions than insertions, got more for {short.num_rows} "
            f"row{'s' * (short.num_rows > 1)} of state, such as of {first}, and no row is in flight: its input is not "
            "reproducible; roll back, then give this operator and everything downstream of it new uids",
        )


def check_unique(uid: str, key: Sequence[str], rows: pa.Table, hint: str) -> None:
    """Raises OperatorFailed: a key has two rows.

    Args:
        rows: key and weight of rows in some state. hint: what to give the operator besides a new uid.
    """
    rows = rows.filter(pc.field(WEIGHT_COLUMN) > 0)
    codes, count = group_rows(key_columns(rows, key))
    weights = np.zeros(count, dtype=np.int64)
    np.add.at(weights, codes, rows.column(WEIGHT_COLUMN).to_numpy())
    crowded = int(np.count_nonzero(weights > 1))
    if crowded:
        first = rows.slice(int(np.flatnonzero(weights[codes] > 1)[0]), 1)
        values = ", ".join(f"{name} = {first.column(name)[0]}" for name in key) or "the only one"
        raise OperatorFailed(
            uid,
            f"expected one row per {', '.join(key) or 'input'}, got several for {crowded} key{'s' * (crowded > 1)}, "
            f"such as {values}; roll back, then give the operator a new uid and {hint}",
        )


def as_insertions(rows: pa.Table) -> pa.Table:
    """Return rows without deletes as insertions of weight 1."""
    kept = [name for name in rows.column_names if name != DELETED_COLUMN]
    return rows.select(kept).append_column(WEIGHT_COLUMN, pa.array(np.ones(rows.num_rows, dtype=np.int64)))


def count_rows(rows: pa.Table) -> int:
    """Return how many input rows a table stands for: with weights, the sum of their absolute values."""
    if WEIGHT_COLUMN not in rows.column_names:
        return int(rows.num_rows)
    return int(pc.sum(pc.abs(rows.column(WEIGHT_COLUMN))).as_py() or 0)
