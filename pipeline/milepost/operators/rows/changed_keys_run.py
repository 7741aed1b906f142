"""Runs that ingest rows silently, and emit the changes of their keys at the end of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.base.edges import DELETED_COLUMN
from milepost.operators.contract import KeyedState, OperatorOutput, RowsOfKeys
from milepost.operators.rows.columns import distinct_rows
from milepost.operators.rows.retractions import check_settled
from milepost.operators.rows.row_order import sorted_rows
from milepost.protocol.records import WEIGHT_COLUMN, cached_property


class ChangingOperator(Protocol):
    """The part of an operator that `ChangedKeysRun` uses."""

    uid: str
    key: tuple[str, ...]
    output_schema: pa.Schema

    def ingest(self, rows: pa.Table, state: KeyedState) -> pa.Table:
        """Store rows, and return their distinct keys. Raises OperatorFailed."""

    def changes(self, keys: pa.Table, state: KeyedState) -> tuple[pa.Table, pa.Table]:
        """Return (changed rows with weights, former rows to delete) of distinct keys, in the order of the keys."""

    def marked(self, rows: pa.Table, ended: pa.Table) -> pa.Table:
        """Return the output rows, with deletes of the rows in `ended` if the operator emits deletes."""


_Operator = TypeVar("_Operator", bound=ChangingOperator)


class ChangedKeysRun(Generic[_Operator]):
    """One subtask's epoch. Changed keys are emitted at its end, and nothing is ever late."""

    def __init__(self, operator: _Operator, state: KeyedState) -> None:
        self._operator, self._state = operator, state
        self._pieces: list[pa.Table] = []
        fields = [field for field in operator.output_schema if field.name != DELETED_COLUMN]
        self._changes = pa.schema([*fields, pa.field(WEIGHT_COLUMN, pa.int64())]).empty_table()

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Ingest rows without emitting anything."""
        if rows.num_rows:
            self._pieces.append(self._operator.ingest(rows, self._state))
        yield from ()

    def advance(self, firing_us: int | None) -> pa.Table:
        """Emit nothing."""
        return self._operator.output_schema.empty_table()

    def finish(self, firing_us: int | None) -> pa.Table:
        """Emit the changed rows in the order of their keys, then deletes of rows that nothing replaces.

        With a stable key, a key is without rows only while the rows that replace them are in flight.
        """
        keys = self._changed_keys
        if keys is None:
            return self._operator.output_schema.empty_table()
        self._changes, ended = self._operator.changes(keys, self._state)
        rows = self._changes.filter(pc.field(WEIGHT_COLUMN) > 0).drop_columns([WEIGHT_COLUMN])
        return self._operator.marked(rows, ended)

    def retractions(self) -> pa.Table:
        """Return the changed rows: retractions of those at the start of the epoch, and the current ones."""
        return self._changes

    @cached_property
    def _changed_keys(self) -> pa.Table | None:
        """The distinct keys of the epoch, ascending; None if there are none. Valid once all rows are ingested."""
        if not any(piece.num_rows for piece in self._pieces):
            return None
        keys = distinct_rows(pa.concat_tables(self._pieces))
        return keys.take(pa.array(sorted_rows(keys, np.zeros(keys.num_rows, dtype=np.int64), ())[0]))


class RetractedKeysRun(ChangedKeysRun[_Operator]):
    """A `ChangedKeysRun` whose state is a multiset of rows that may be retracted."""

    def check_settled(self, *, all_keys: bool) -> None:
        """Raises OperatorFailed: a row was retracted but never inserted."""
        rows = self._rows_to_check(all_keys=all_keys).filter(pc.field(WEIGHT_COLUMN) < 0)
        check_settled(self._operator.uid, self._operator.key, rows)

    def _rows_to_check(self, *, all_keys: bool, columns: Sequence[str] | None = None) -> pa.Table:
        """Return `columns`, or else the key, and the weight of all rows, or of those of the keys that changed."""
        columns = [*(self._operator.key if columns is None else columns), WEIGHT_COLUMN]
        if all_keys:
            return self._state.rows().select(columns)
        if self._rows_of_changed_keys is None:
            return self._changes.slice(0, 0).select(columns)
        return self._rows_of_changed_keys.take(columns)

    @cached_property
    def _rows_of_changed_keys(self) -> RowsOfKeys | None:
        """The rows of the keys that changed, at the end of the epoch; None if there are no such keys."""
        return None if self._changed_keys is None else self._state.lookup_all(self._changed_keys)
