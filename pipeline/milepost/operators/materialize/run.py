"""`kind: materialize`: rows that are inserted and retracted become updates by a key.

State is the multiset of the input's rows by key. Each epoch emits the keys with changed rows, and deletes those that
no longer have one::

    change                       rows of key 7                  output
    +(7, berlin)                 berlin                         7  berlin
    +(7, rome)                   berlin, rome                   7  rome, the greatest, while rows are in flight
    -(7, berlin)                 rome                           nothing, because 7 still shows rome
    -(7, rome)                                                  7 is deleted

An update can move a row between subtasks upstream, so the new row may arrive in an epoch before the retraction of the
old one. Uniqueness is therefore checked only if nothing is in flight before this operator or upstream of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.contract import (
    ONLY_TABLE,
    BuildOptions,
    CheckpointListener,
    Combiner,
    Ints,
    KeyedState,
    OperatorInput,
    OutputKind,
    RowsOfKeys,
    StatefulOperator,
    StateTable,
    multi_row_table,
)
from milepost.operators.materialize.spec import MaterializeOperator
from milepost.operators.rows.changed_keys_run import RetractedKeysRun
from milepost.operators.rows.columns import (
    check_key,
    distinct_rows,
    group_rows,
    key_columns,
    plain_schema,
    with_plain_keys,
)
from milepost.operators.rows.deletes import DELETED_FIELD, with_deletes
from milepost.operators.rows.retractions import changed_rows, check_unique, present_rows
from milepost.operators.rows.row_order import last_rows
from milepost.protocol.records import WEIGHT_COLUMN


def build(spec: MaterializeOperator, inputs: Sequence[OperatorInput], options: BuildOptions) -> StatefulOperator:
    """Return the operator of a spec. Raises InvalidRequest."""
    (input_,) = inputs
    return MaterializeByKey(spec.uid, spec.key, input_)


class MaterializeByKey:
    """The current row of each key. Nothing is ever late, and null is a key of its own."""

    output_kind = OutputKind.UPDATES
    published_table = ONLY_TABLE
    combiner: Combiner | None = None
    listener: CheckpointListener | None = None

    def __init__(self, uid: str, key: Sequence[str], input_: OperatorInput) -> None:
        check_key(uid, key, input_.schema)
        self.uid = uid
        self.key = self.output_key = tuple(key)
        self.routing_keys: tuple[tuple[str, ...], ...] = (self.key,)
        self.row_schema = pa.schema([field for field in plain_schema(input_.schema) if field.name != WEIGHT_COLUMN])
        self.deletes = not input_.always_has(key)
        self.output_schema = self.row_schema.append(DELETED_FIELD) if self.deletes else self.row_schema
        self.tables: Mapping[str, StateTable] = {ONLY_TABLE: multi_row_table(self.key, self.row_schema)}

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> MaterializeRun:
        """Start one subtask's epoch. Nothing here fires."""
        return MaterializeRun(self, tables[ONLY_TABLE])

    def ingest(self, rows: pa.Table, state: KeyedState) -> pa.Table:
        """Add rows to the state, and return their distinct keys."""
        weights = rows.column(WEIGHT_COLUMN)
        rows = with_plain_keys(rows.select(self.row_schema.names).cast(self.row_schema), self.key)
        state.add(rows.append_column(WEIGHT_COLUMN, weights))
        return distinct_rows(rows.select(list(self.key)))

    def changes(self, keys: pa.Table, state: KeyedState) -> tuple[pa.Table, pa.Table]:
        """Return (changed rows with weights, former rows of keys without one now) of distinct keys, by key."""
        before, places_before = self.shown(state.lookup_all_at_start(keys))
        now, places = self.shown(state.lookup_all(keys))
        return changed_rows(before, places_before, now, places)

    def shown(self, found: RowsOfKeys) -> tuple[pa.Table, Ints]:
        """Return the greatest row of each key that has any, by key, and the number of its key."""
        rows, owners = present_rows(found, self.row_schema.names)
        owning, groups = np.unique(owners, return_inverse=True)
        return rows.take(pa.array(last_rows(rows, groups, ()))), owning

    def results(self, state_rows: pa.Table) -> pa.Table:
        """Return the output of all rows of some state, by its order."""
        state_rows = state_rows.filter(pc.field(WEIGHT_COLUMN) > 0)
        rows = state_rows.select(self.row_schema.names)
        rows = rows.take(pa.array(last_rows(rows, group_rows(key_columns(rows, self.key))[0], ())))
        return self.marked(rows, self.row_schema.empty_table())

    def marked(self, rows: pa.Table, deleted_rows: pa.Table) -> pa.Table:
        """Return the output rows, with deletes of the keys in `deleted_rows` if the operator emits deletes."""
        return with_deletes(rows, deleted_rows, self.key) if self.deletes else rows


class MaterializeRun(RetractedKeysRun[MaterializeByKey]):
    """One subtask's epoch of a `MaterializeByKey`."""

    def check_unique(self, *, all_keys: bool) -> None:
        """Raises OperatorFailed: a key has two rows."""
        hint = "a key that is unique in its input, or take one row of each key with `kind: top` and `n: 1`"
        check_unique(self._operator.uid, self._operator.key, self._rows_to_check(all_keys=all_keys), hint)
