"""`kind: latest` with partial updates: a row may leave columns open, which keep the value of an older row.

Each column has the value of the newest row that has one, and none from before the last delete. State has the sequence
of each column's value and of the last delete, so rows may arrive in any order. With `ignore_nulls: true`::

    id  status  paid  lsn  a delete     state: status (lsn)  paid (lsn)  last delete
    1   new     null  10   false        new (10)             null        null
    1   null    9.5   30   false        new (10)             9.5 (30)    null
    1   sent    1.0   20   false        sent (20)            9.5 (30)    null         it fills what 30 left open
    1   null    null  25   true         null                 9.5 (30)    25           20 is from before the delete
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.contract import Bools, GroupedKeys, Ints, KeyedState, OperatorFailed, OperatorInput, only_table
from milepost.operators.latest.newest import LatestByKey
from milepost.operators.latest.spec import LatestOperator
from milepost.operators.rows.columns import with_plain_keys
from milepost.operators.rows.row_order import last_rows, order_numbers, same_values
from milepost.operators.rows.tombstones import TOMBSTONE_COLUMN
from milepost.protocol.records import BEGINS_NULL

_NUMBER = "__number"
_NEVER = -1
"""Number of a sequence that is null: of a column without a value, or without a delete."""


class PartialByKey(LatestByKey):
    """The newest value of each column of a key. Nothing is late, and null is a key of its own."""

    def __init__(self, spec: LatestOperator, input_: OperatorInput) -> None:
        super().__init__(spec, input_)
        self._ignores_nulls, self._unchanged = spec.ignore_nulls, spec.unchanged
        self._sequence = spec.sequence_by
        times = [self._row_schema.field(name).type for name in self._sequence]
        owners = [*self._payload, *([TOMBSTONE_COLUMN] if self.deletes else [])]
        sequences = [
            pa.field(name, time, metadata={BEGINS_NULL: "1"})
            for owner in owners
            for name, time in zip(self._sequence_of(owner), times, strict=True)
        ]
        self.state_schema = pa.schema([*self._row_schema, *sequences])
        self.tables = only_table(self.key, self.key, self.state_schema)
        self.combiner = None

    def _sequence_of(self, column: str) -> list[str]:
        """Return the state columns with the sequence of a column's value, or of the last delete."""
        return [f"__{place}_{column}" for place in range(len(self._sequence))]

    def _keep(self, rows: pa.Table, lateness_us: int | None, state: KeyedState) -> pa.Table:
        """Fold rows into the state. Return the state rows that changed. Raises OperatorFailed: a sequence is null."""
        if not rows.num_rows:
            return self.state_schema.empty_table()
        for name in self._sequence:
            missing = rows.column(name).null_count
            if missing:
                raise OperatorFailed(
                    self.uid,
                    f"{missing} of {rows.num_rows} rows have no sequence ({name} is null), so it is not known which "
                    "columns they may replace; filter them before it",
                )
        rows = self._with_sequences(with_plain_keys(rows, self._sequence))
        occurring = state.group(rows.select(list(self.key)))
        stored, known = occurring.find()
        both = pa.concat_tables([rows, stored.filter(pa.array(known))])
        folded = self._folded(both, np.concatenate([occurring.codes, np.flatnonzero(known)]), len(known))
        return self._put_changed(occurring, folded, stored, known)

    def _put_changed(self, occurring: GroupedKeys, folded: pa.Table, stored: pa.Table, known: Bools) -> pa.Table:
        changed = ~(same_values(folded, stored.select(folded.column_names)) & known)
        rows = folded.filter(pa.array(changed))
        occurring.put(rows, changed)
        return rows

    def _with_sequences(self, rows: pa.Table) -> pa.Table:
        """Return rows in the columns of the state. The sequence of a column that a row leaves open is null."""
        sequence = [rows.column(name) for name in self._sequence]
        deleted = rows.column(TOMBSTONE_COLUMN) if self.deletes else pa.array(np.zeros(rows.num_rows, dtype=np.bool_))
        for name in self._payload:
            column, is_open = rows.column(name), deleted
            if self._ignores_nulls:
                is_open = pc.or_(is_open, pc.is_null(column))
            if self._unchanged is not None and pa.types.is_string(column.type):
                is_open = pc.or_(is_open, pc.fill_null(pc.equal(column, self._unchanged), False))
            at = rows.column_names.index(name)
            rows = rows.set_column(at, rows.field(at), pc.if_else(is_open, None, column))
            for state_name, time in zip(self._sequence_of(name), sequence, strict=True):
                rows = rows.append_column(state_name, pc.if_else(is_open, None, time))
        if self.deletes:
            for state_name, time in zip(self._sequence_of(TOMBSTONE_COLUMN), sequence, strict=True):
                rows = rows.append_column(state_name, pc.if_else(deleted, time, None))
        return rows.select(self.state_schema.names).cast(self.state_schema)

    def _folded(self, rows: pa.Table, groups: Ints, count: int) -> pa.Table:
        """Fold state rows into one per group, in the order of the groups. The order of the rows has no effect."""
        own, deletes, *values = self._numbers(rows)
        last_delete = np.full(count, _NEVER)
        np.maximum.at(last_delete, groups, deletes)
        newest = _greatest(groups, own, None, np.ones(len(groups), dtype=np.bool_), count)
        columns = {name: rows.column(name).take(pa.array(newest)) for name in (*self.key, *self._sequence)}
        for name, numbers in zip(self._payload, values, strict=True):
            places = _greatest(groups, numbers, rows.column(name), numbers > last_delete[groups], count)
            taken = pa.array(places, mask=places < 0)
            columns |= {one: rows.column(one).take(taken) for one in (name, *self._sequence_of(name))}
        if self.deletes:
            places = _greatest(groups, deletes, None, deletes > _NEVER, count)
            taken = pa.array(places, mask=places < 0)
            columns |= {one: rows.column(one).take(taken) for one in self._sequence_of(TOMBSTONE_COLUMN)}
            columns[TOMBSTONE_COLUMN] = pa.array(last_delete >= own[newest])
        return pa.table([columns[name] for name in self.state_schema.names], schema=self.state_schema)

    def _numbers(self, rows: pa.Table) -> list[Ints]:
        """Return comparable numbers of sequences: of the rows, of their last deletes, and of each column's value."""
        deletes = [self._sequence_of(TOMBSTONE_COLUMN)] if self.deletes else []
        names = [list(self._sequence), *deletes, *map(self._sequence_of, self._payload)]
        stacked = [
            pa.chunked_array([chunk for one in names for chunk in rows.column(one[place]).chunks])
            for place in range(len(self._sequence))
        ]
        numbers = order_numbers(stacked)
        numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
        missing = np.concatenate([rows.column(one[0]).is_null().to_numpy() for one in names])
        numbers = np.where(missing, _NEVER, numbers)
        parts = np.split(numbers, len(names))
        return parts if self.deletes else [parts[0], np.full(rows.num_rows, _NEVER), *parts[1:]]


def _greatest(groups: Ints, numbers: Ints, column: pa.ChunkedArray | None, among: Bools, count: int) -> Ints:
    """Return the position of the row of each group with the greatest number, then value of a column; -1 without one."""
    positions = np.flatnonzero(among)
    places = np.full(count, -1, dtype=np.int64)
    if len(positions):
        compared = pa.table(
            {_NUMBER: numbers[positions]} | ({} if column is None else {"value": column.take(positions)})
        )
        owners, of_owner = np.unique(groups[positions], return_inverse=True)
        places[owners] = positions[last_rows(compared, of_owner.astype(np.int64), (_NUMBER,))]
    return places
