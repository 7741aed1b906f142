"""`kind: history`: the versions of each key. Each epoch emits the versions that it changed, and deletes former ones.

State has one row per key and sequence, including rows that begin no version, because a late row may separate them from
the row before. With `track: [city]`::

    rows of a key, in the order of their arrival      the table: [valid_from, valid_to) city
    10 rome, 20 rome, 40 oslo                         [10, 40) rome   [40, ...) oslo
    30 is a delete                                    [10, 30) rome   [40, ...) oslo
    15 bonn                                           [10, 15) rome   [15, 20) bonn   [20, 30) rome   [40, ...) oslo
    20 is a delete                                    [10, 15) rome   [15, 20) bonn   [40, ...) oslo
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from milepost.operators.base.edges import DELETED_COLUMN
from milepost.operators.contract import (
    ONLY_TABLE,
    BuildOptions,
    CheckpointListener,
    Combiner,
    Ints,
    KeyedState,
    OperatorFailed,
    OperatorInput,
    OutputKind,
    StatefulOperator,
    only_table,
)
from milepost.operators.history.spec import IS_CURRENT, VALID_FROM, VALID_TO, HistoryOperator
from milepost.operators.rows.changed_keys_run import ChangedKeysRun
from milepost.operators.rows.columns import (
    check_key,
    check_order,
    distinct_columns,
    distinct_rows,
    group_rows,
    key_columns,
    plain_schema,
    with_plain_keys,
)
from milepost.operators.rows.deletes import DELETED_FIELD, with_deletes
from milepost.operators.rows.retractions import changed_rows, places_by_key
from milepost.operators.rows.row_order import same_values, sorted_rows, tie_break
from milepost.operators.rows.tombstones import TOMBSTONE_COLUMN, are_tombstones, put_last_rows, without_payload
from milepost.protocol.records import BEGINS_NULL


def build(spec: HistoryOperator, inputs: Sequence[OperatorInput], options: BuildOptions) -> StatefulOperator:
    """Return the operator of a spec. Raises InvalidRequest."""
    (input_,) = inputs
    return HistoryByKey(spec, input_)


class HistoryByKey:
    """The versions of each key. Nothing is ever late, and null is a key of its own."""

    output_kind = OutputKind.UPDATES
    published_table = ONLY_TABLE
    combiner: Combiner | None = None
    listener: CheckpointListener | None = None

    def __init__(self, spec: HistoryOperator, input_: OperatorInput) -> None:
        """Args:
        input_: with `DELETED_COLUMN` where the spec has `delete_when`.
        """
        schema = plain_schema(input_.schema)
        self.uid, self.key, self.sequence = spec.uid, spec.key, spec.sequence
        check_key(self.uid, self.key, schema)
        check_order(self.uid, (self.sequence,), schema)
        self._marks_deletes, self.deletes = DELETED_COLUMN in schema.names, spec.versions_can_end
        self._track = None if spec.track is None else list(spec.track)
        self._shown = list(spec.columns or (name for name in schema.names if name != DELETED_COLUMN))
        self._payload = [name for name in self._shown if name not in {*self.key, self.sequence}]
        self._input_schema = schema
        self.routing_keys: tuple[tuple[str, ...], ...] = (self.key,)
        self.output_key = (*self.key, VALID_FROM)
        self.row_key = (*self.key, self.sequence)
        stored = [self._state_field(field) for field in schema if field.name in {*self.row_key, *self._shown}]
        tombstone = [pa.field(TOMBSTONE_COLUMN, pa.bool_())] * self._marks_deletes
        self.state_schema = pa.schema([*stored, *tombstone])
        self.tables = only_table(
            self.row_key, self.key, self.state_schema, tie_break(pa.schema(stored), self.row_key, ())
        )
        time = schema.field(self.sequence).type
        version = [pa.field(VALID_FROM, time), pa.field(VALID_TO, time), pa.field(IS_CURRENT, pa.bool_())]
        self.version_schema = distinct_columns(self.uid, [*(schema.field(name) for name in self._shown), *version])
        self.output_schema = self.version_schema.append(DELETED_FIELD) if self.deletes else self.version_schema

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> ChangedKeysRun[HistoryByKey]:
        """Start one subtask's epoch. Nothing here fires."""
        return ChangedKeysRun(self, tables[ONLY_TABLE])

    def ingest(self, rows: pa.Table, state: KeyedState) -> pa.Table:
        """Store the winning row of each key and sequence. Return the distinct keys with changed rows.

        Raises:
            OperatorFailed: a row has no sequence.
        """
        rows = rows.select(self._input_schema.names).cast(self._input_schema)
        missing = rows.column(self.sequence).null_count
        if missing:
            raise OperatorFailed(
                self.uid,
                f"{missing} of {rows.num_rows} rows have no sequence ({self.sequence} is null), so their version has "
                "no beginning; filter them before it",
            )
        sources = [DELETED_COLUMN if name == TOMBSTONE_COLUMN else name for name in self.state_schema.names]
        rows = with_plain_keys(pa.table(rows.select(sources).columns, schema=self.state_schema), self.row_key)
        if self._marks_deletes:
            rows = without_payload(rows, self._payload)
        occurring = state.group(rows.select(list(self.row_key)))
        order = (TOMBSTONE_COLUMN,) if self._marks_deletes else ()
        changed = put_last_rows(occurring, rows, *occurring.find(), order)
        return distinct_rows(changed.select(list(self.key)))

    def changes(self, keys: pa.Table, state: KeyedState) -> tuple[pa.Table, pa.Table]:
        """Return (changed versions of distinct keys with weights, the former versions that no longer begin anywhere).

        Both are ordered by key and `valid_from`.
        """
        (before, of_before), (now, of_now) = (
            self._versions(found.take(self.state_schema.names), found.owners)
            for found in (state.lookup_all_at_start(keys), state.lookup_all(keys))
        )
        at_start, current = places_by_key(before.select([VALID_FROM]), of_before, now.select([VALID_FROM]), of_now)
        return changed_rows(before, at_start, now, current)

    def results(self, state_rows: pa.Table) -> pa.Table:
        """Return the versions of all rows of some state."""
        groups, _ = group_rows(key_columns(state_rows, self.key))
        return self.marked(self._versions(state_rows, groups)[0], self.version_schema.empty_table())

    def marked(self, rows: pa.Table, ended: pa.Table) -> pa.Table:
        """Return the output rows, with deletes of versions in `ended` if the operator emits deletes."""
        return with_deletes(rows, ended, self.output_key) if self.deletes else rows

    def _versions(self, state_rows: pa.Table, owners: Ints) -> tuple[pa.Table, Ints]:
        """Return the versions of keys, by key and `valid_from`, and the number of each one's key.

        Args:
            owners: number of the key of each row.
        """
        # One key, with `track: [city]`. A version has the columns of its last row, and ends where the next span begins.
        #   sequence   10    20    30        40        50    60
        #   city       rome  rome  (delete)  (delete)  rome  oslo
        #   begins     1     0     1         1         1     1       a version, or a span without one
        #   versions   [10, 30) rome of 20   [50, 60) rome of 50   [60, null) oslo of 60
        order, _ = sorted_rows(state_rows.select([self.sequence]), owners, ())
        rows, owners = state_rows.take(pa.array(order)), owners[order]
        deleted = are_tombstones(rows)
        begins = np.ones(len(order), dtype=np.bool_)
        if self._track is not None and len(order) > 1:
            tracked = rows.select(self._track)
            joins = same_values(tracked.slice(1), tracked.slice(0, len(order) - 1))
            joins &= (owners[1:] == owners[:-1]) & ~deleted[1:] & ~deleted[:-1]
            begins[1:] = ~joins
        starts = np.flatnonzero(begins)
        after = np.append(starts[1:], len(order))
        is_last = np.append(owners[starts[1:]] != owners[starts[:-1]], True)[: len(starts)]
        shown = ~deleted[starts]
        starts, after, is_last = starts[shown], after[shown], is_last[shown]
        times = rows.column(self.sequence)
        columns = [
            *rows.select(self._shown).take(pa.array(after - 1)).columns,
            times.take(pa.array(starts)),
            times.take(pa.array(after, mask=is_last)),
            pa.array(is_last),
        ]
        return pa.table(columns, schema=self.version_schema), owners[starts]

    def _state_field(self, field: pa.Field) -> pa.Field:
        """Return a state column. A column that only the table has may be added later, and begins null."""
        is_added = field.name in self._payload and field.name not in (self._track or ())
        return field.with_metadata({BEGINS_NULL: "1"}) if is_added else field
