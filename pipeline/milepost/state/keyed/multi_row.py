"""Multi-row tables keep the rows of a routing key one by one: equal ones once, with how many there are.

Columns: the rows' own, among them the routing key; their identity (`state/layers/row_identity.py`), which completes the
key; and `__weight`. Which columns the identity is over is recorded with the schema.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from milepost.protocol.records.errors import InvalidRequest
from milepost.protocol.records.state_columns import IDENTITY_COLUMNS, ROW_IDENTITY, WEIGHT_COLUMN
from milepost.state.layers.exact_keys import same_keys
from milepost.state.layers.key_groups import Ints
from milepost.state.layers.row_identity import identity_of, plain_columns
from milepost.state.runs.identity import StateIdentity


@dataclass(frozen=True, slots=True)
class RowIdentity:
    """How the rows of a multi-row table are told apart.

    Attributes:
        columns: that the identity is over.
    """

    state: StateIdentity
    columns: tuple[str, ...]

    @classmethod
    def of(cls, state: StateIdentity) -> RowIdentity:
        """Return the identity that a table's schema records. Raises KeyError: it is no multi-row table."""
        recorded = (state.stored.field(IDENTITY_COLUMNS[0]).metadata or {})[ROW_IDENTITY]
        return cls(state, tuple(json.loads(recorded)))

    def identified(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return rows with the table's columns, each of them once, and their plain columns."""
        schema = self.state.schema
        plain = plain_columns(rows.select(list(self.columns)))
        once = dict(zip(IDENTITY_COLUMNS, identity_of(plain, self.state.keys.hasher), strict=True))
        if WEIGHT_COLUMN not in rows.column_names:
            once[WEIGHT_COLUMN] = np.ones(rows.num_rows, dtype=np.int64)
        columns = [pa.array(once[name]) if name in once else rows.column(name) for name in schema.names]
        return pa.table(columns, names=schema.names).cast(schema), plain

    def check_same(self, one: pa.Table, one_rows: Ints, other: pa.Table, other_rows: Ints) -> None:
        """Compare rows that share an identity, by their plain columns.

        Raises: InvalidRequest: two differ; a table that keeps them as one would give out a row that never was.
        """
        different = np.count_nonzero(~same_keys(one, one_rows, other, other_rows, one.column_names))
        if different:
            raise InvalidRequest(
                f"operator {self.state.uid}: {different} rows differ from others with the same identity of 128 bits. "
                "Nothing was published.",
                hint="report this: it does not happen by chance",
                uid=self.state.uid,
            )
