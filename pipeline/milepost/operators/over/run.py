"""`kind: over`: functions over the rows of a partition, in an order.

State has all rows of the input. An epoch evaluates each partition with changed rows as it was at the start and as it is
now, and emits the rows with changed values. With `sum(price) rows 1 preceding`, by time::

    rows of a partition    values            output
    1:00 5, 3:00 7         5, 12             1:00 5 5, 3:00 7 12
    2:00 1 arrives         5, 6, 8           2:00 1 6, 3:00 7 8
    1:00 is retracted      1, 8              1:00 is deleted, 2:00 1 1

An update can move a row between subtasks upstream, so the new row may arrive in an epoch before the retraction of the
old one. Of two rows with one key the greatest counts then. Uniqueness is checked once nothing is in flight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from milepost.language import ColumnType, to_arrow
from milepost.operators.base.operator_spec import ordered_columns
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
    StateTable,
    multi_row_table,
)
from milepost.operators.over.calls import OverCall, over_type
from milepost.operators.over.frames import PartitionBounds, TooLarge, evaluate
from milepost.operators.over.spec import OverOperator
from milepost.operators.rows.changed_keys_run import RetractedKeysRun
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
from milepost.operators.rows.retractions import changed_rows, check_unique, places_by_key, present_rows
from milepost.operators.rows.row_order import last_rows, sorted_rows
from milepost.protocol.records import WEIGHT_COLUMN


def build(spec: OverOperator, inputs: Sequence[OperatorInput], options: BuildOptions) -> StatefulOperator:
    """Return the operator of a spec. Raises InvalidRequest."""
    (input_,) = inputs
    return OverPartitions(spec, input_)


class OverPartitions:
    """The rows of partitions with the values of functions. Nothing is ever late, and null is a partition of its own."""

    output_kind = OutputKind.UPDATES
    published_table = ONLY_TABLE
    combiner: Combiner | None = None
    listener: CheckpointListener | None = None

    def __init__(self, spec: OverOperator, input_: OperatorInput) -> None:
        self.uid, self.key, self.order_by, self.row_key = spec.uid, spec.key, spec.order_by, spec.row_key
        self.functions, self.output_key = spec.functions, spec.output_key
        schema = input_.schema
        check_key(self.uid, self.output_key, schema)
        check_order(self.uid, ordered_columns(self.order_by), schema)
        self.over_updates = WEIGHT_COLUMN in schema.names
        self.row_schema = pa.schema([field for field in plain_schema(schema) if field.name != WEIGHT_COLUMN])
        made = [pa.field(name, _result_type(call, self.row_schema)) for name, call in self.functions.items()]
        self.valued_schema = distinct_columns(self.uid, [*self.row_schema, *made])
        self.deletes = self.over_updates and not input_.always_has(self.output_key)
        self.output_schema = self.valued_schema.append(DELETED_FIELD) if self.deletes else self.valued_schema
        self.routing_keys: tuple[tuple[str, ...], ...] = (self.key,)
        self.tables: Mapping[str, StateTable] = {ONLY_TABLE: multi_row_table(self.key, self.row_schema)}

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> OverRun:
        """Start one subtask's epoch. Nothing here fires."""
        return OverRun(self, tables[ONLY_TABLE])

    def ingest(self, rows: pa.Table, state: KeyedState) -> pa.Table:
        """Add rows to the state, and return the distinct keys of their partitions."""
        weights = rows.column(WEIGHT_COLUMN) if self.over_updates else None
        rows = with_plain_keys(rows.select(self.row_schema.names).cast(self.row_schema), self.output_key)
        state.add(rows if weights is None else rows.append_column(WEIGHT_COLUMN, weights))
        return distinct_rows(key_columns(rows, self.key))

    def changes(self, keys: pa.Table, state: KeyedState) -> tuple[pa.Table, pa.Table]:
        """Return (changed rows with weights, former rows that have left) of distinct partitions.

        Both are ordered by partition and `row_key`.
        """
        (before, of_before), (now, of_now) = (
            self._valued(*present_rows(found, self.row_schema.names))
            for found in (state.lookup_all_at_start(keys), state.lookup_all(keys))
        )
        at_start, current = places_by_key(self._row_keys(before), of_before, self._row_keys(now), of_now)
        return changed_rows(before, at_start, now, current)

    def results(self, state_rows: pa.Table) -> pa.Table:
        """Return the output of all rows of some state."""
        state_rows = state_rows.filter(pc.field(WEIGHT_COLUMN) > 0)
        owners, _ = group_rows(key_columns(state_rows, self.key))
        return self.marked(self._valued(state_rows, owners)[0], self.valued_schema.empty_table())

    def marked(self, rows: pa.Table, ended: pa.Table) -> pa.Table:
        """Return the output rows, with deletes of the rows in `ended` if the operator emits deletes."""
        return with_deletes(rows, ended, self.output_key) if self.deletes else rows

    def _valued(self, rows: pa.Table, owners: Ints) -> tuple[pa.Table, Ints]:
        """Return rows with the values of the functions, sorted, and the number of each one's partition."""
        rows = rows.select(self.row_schema.names)
        codes, count = group_rows(self._row_keys(rows).append_column("__partition", pa.array(owners)))
        if count < rows.num_rows:
            chosen = last_rows(rows, codes, ())
            rows, owners = rows.take(pa.array(chosen)), owners[chosen]
        order_columns = ordered_columns(self.order_by)
        ordered = rows.select([*self.row_key, *(name for name in order_columns if name not in self.row_key)])
        order, _ = sorted_rows(ordered, owners, self.order_by)
        rows, owners = rows.take(pa.array(order)), owners[order]
        bounds = PartitionBounds.of(owners, [rows.column(name) for name in order_columns])
        columns = [*rows.columns]
        for name, call in self.functions.items():
            column = None if call.column is None else rows.column(call.column)
            try:
                columns.append(evaluate(call, column, bounds, self.valued_schema.field(name).type))
            except TooLarge as problem:
                raise self._too_large(call, rows.slice(problem.row, 1), self.valued_schema.field(name).type) from None
        return pa.table(columns, schema=self.valued_schema), owners

    def _row_keys(self, rows: pa.Table) -> pa.Table:
        return rows.select(list(self.row_key)) if self.row_key else key_columns(rows, ())

    def _too_large(self, call: OverCall, row: pa.Table, type_: pa.DataType) -> OperatorFailed:
        key = ", ".join(f"{name} = {row.column(name)[0]}" for name in self.output_key) or "the only row"
        return OperatorFailed(
            self.uid, f"{call} does not fit {type_} for {key}; cast {call.column} to a decimal with more digits"
        )


class OverRun(RetractedKeysRun[OverPartitions]):
    """One subtask's epoch of an `OverPartitions`."""

    def check_settled(self, *, all_keys: bool) -> None:
        """Raises OperatorFailed: a row was retracted but never inserted."""
        if self._operator.over_updates:
            super().check_settled(all_keys=all_keys)

    def check_unique(self, *, all_keys: bool) -> None:
        """Raises OperatorFailed: two rows have one key."""
        key = self._operator.output_key
        rows = self._rows_to_check(all_keys=all_keys, columns=key)
        hint = "a `row_key` that is unique in its input"
        check_unique(self._operator.uid, key, rows, hint)


def _result_type(call: OverCall, schema: pa.Schema) -> pa.DataType:
    """Return the Arrow type of a function's values."""
    if call.column is None or call.function == "count":
        return to_arrow(str(over_type(call, {})))
    type_ = schema.field(call.column).type
    if call.function not in ("sum", "avg"):
        return type_
    number = ColumnType("float64" if pa.types.is_floating(type_) else "int64")
    if pa.types.is_decimal(type_):
        number = ColumnType("decimal", precision=type_.precision, scale=type_.scale)
    return to_arrow(str(over_type(call, {call.column: number})))
