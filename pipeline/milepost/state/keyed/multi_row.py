"""Multi-row tables store a multiset of rows per routing key: each distinct row once, with its count.

Columns: those of the rows, including the routing key; the row identity (`state/layers/row_identity.py`), which
completes the key; and `__weight`, the count. The schema records the columns that the identity covers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from milepost.errors import InvalidRequest
from milepost.protocol.records import IDENTITY_COLUMNS, ROW_IDENTITY, WEIGHT_COLUMN
from milepost.state.layers.exact_keys import same_keys
from milepost.state.layers.key_groups import Ints
from milepost.state.layers.layer import Bools, Layer
from milepost.state.layers.row_identity import identity_of, plain_columns
from milepost.state.runs.identity import StateIdentity


@dataclass(frozen=True, slots=True)
class RowIdentity:
    """Distinguishes the rows of a multi-row table.

    Attributes:
        columns: those that the identity covers.
    """

    state: StateIdentity
    columns: tuple[str, ...]

    @classmethod
    def of(cls, state: StateIdentity) -> RowIdentity:
        """Return the identity that a table's schema records. Raises KeyError: not a multi-row table."""
        recorded = (state.stored.field(IDENTITY_COLUMNS[0]).metadata or {})[ROW_IDENTITY]
        return cls(state, tuple(json.loads(recorded)))

    def add_identity(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return rows with all columns of the table, each with weight 1 by default, and their plain columns."""
        schema = self.state.schema
        plain = plain_columns(rows.select(list(self.columns)))
        computed = dict(zip(IDENTITY_COLUMNS, identity_of(plain, self.state.keys.hasher), strict=True))
        if WEIGHT_COLUMN not in rows.column_names:
            computed[WEIGHT_COLUMN] = np.ones(rows.num_rows, dtype=np.int64)
        columns = [pa.array(computed[name]) if name in computed else rows.column(name) for name in schema.names]
        return pa.table(columns, names=schema.names).cast(schema), plain

    def check_same(self, left: pa.Table, left_rows: Ints, right: pa.Table, right_rows: Ints) -> None:
        """Compare pairs of rows that share an identity, by their plain columns.

        Raises:
            InvalidRequest: two rows differ. Stored as one row, they would make the table emit a row that never existed.
        """
        different = np.count_nonzero(~same_keys(left, left_rows, right, right_rows, left.column_names))
        if different:
            raise InvalidRequest(
                f"operator {self.state.uid}: {different} rows have the same 128-bit identity as different rows. "
                "Nothing was published.",
                hint="report this: it does not happen by chance",
                uid=self.state.uid,
            )


@dataclass(frozen=True, slots=True)
class WeightChanges:
    """The rows with weights that an epoch changed.

    Attributes:
        positions: positions of the rows in the layer of changes.
        rows: the rows, with their current weight.
        before: weight of each row when the epoch began.
    """

    positions: Ints
    rows: pa.Table
    before: Ints


def weight_changes(changes: Layer, before: pa.Table, existed: Bools) -> WeightChanges:
    """Return the rows with weights that an epoch changed.

        changes          before     returned
        a  weight 2      a  1       a  weight 2, before 1
        b  deleted       b  3       b  weight 0, before 3
        c  weight 1      none       c  weight 1, before 0
        d  weight 4      d  4       nothing

    Args:
        changes: newest row or tombstone of each key that was written. before, existed: the row of each of these keys at
            the start of the epoch, and whether it had one.
    """
    was = np.where(existed, before.column(WEIGHT_COLUMN).fill_null(0).to_numpy(), 0)
    is_now = np.where(changes.deleted, 0, changes.rows.column(WEIGHT_COLUMN).fill_null(0).to_numpy())
    changed = np.flatnonzero(was != is_now)
    # A tombstone has no values but its key. Its row is the one that was there before.
    place = np.where(changes.deleted, changes.num_rows, 0) + np.arange(changes.num_rows)
    rows = pa.concat_tables([changes.rows, before]).take(pa.array(place[changed]))
    weights = pa.array(is_now[changed])
    rows = rows.set_column(rows.column_names.index(WEIGHT_COLUMN), WEIGHT_COLUMN, weights)
    return WeightChanges(changed, rows, was[changed])
