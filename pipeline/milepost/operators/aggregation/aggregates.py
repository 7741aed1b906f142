"""Aggregates of one operator, their shared accumulators, and their results in Spark's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import InvalidRequest
from milepost.language import AggregateCall
from milepost.operators.aggregation.accumulators import Accumulator, Argument, Count, Grouped, Subtracted
from milepost.operators.aggregation.bound_functions import BoundFunction, Column, NamedCall, bound
from milepost.operators.aggregation.distinct_values import DistinctValues, flag_of
from milepost.operators.aggregation.order_free_sums import ZERO
from milepost.operators.aggregation.value_tables import WeightedRows, weighted_tables
from milepost.operators.contract import Bools, GroupedKeys, Ints, KeyedState, StateTable

ROWS_COLUMN = "__rows"
"""Number of input rows of a partial result, and over updates number of rows of a key."""


def timed_calls(uid: str, calls: Mapping[str, AggregateCall], event_time: str | None) -> dict[str, AggregateCall]:
    """Bind `first` and `last` to the operator's event time. Raises InvalidRequest: the input has no event time."""
    try:
        return {name: call.timed(event_time) for name, call in calls.items()}
    except ValueError as problem:
        raise InvalidRequest(f"operator {uid!r}: {problem}. Nothing was changed.") from None


class Aggregates:
    """Folds rows into per-key accumulators and reads results from them.

    Attributes:
        state_fields: state columns of all accumulators.
        distinct: value tables, one per distinct count.
        weighted: over updates, tables of the live values.
        output_fields: one field per aggregate, by its name in the spec. Counts and sums of integers are int64, sums of
            decimals are decimal(38, s). Sums of floats, averages and deviations are float64, any and every are bool.
            Others have the column's type.
    """

    def __init__(
        self,
        uid: str,
        calls: Mapping[str, AggregateCall],
        schema: pa.Schema,
        *,
        over_updates: bool = False,
        any_order: bool = False,
    ) -> None:
        """Args:
        over_updates: whether input rows may be retracted. Then state has `ROWS_COLUMN`, and there may be `weighted`.
        any_order: whether separately accumulated rows are merged in another order than that of the rows.

        Raises InvalidRequest: a column is missing or has an unsupported type.
        """
        self._schema = schema
        self._types = {column: _type_of(uid, column, schema) for call in calls.values() for column in call.columns}
        accumulators: dict[str, tuple[str | None, Accumulator]] = {}
        if over_updates:
            accumulators[ROWS_COLUMN] = None, Count(Argument(None), ROWS_COLUMN)
        self._functions: dict[str, BoundFunction] = {}
        for name, call in calls.items():
            named = NamedCall(uid, name, call, self._types)
            function = self._functions[name] = bound(named, over_updates=over_updates, any_order=any_order)
            if over_updates:
                _check_taken_back(named)
            if over_updates and call.weighted_table is not None:
                continue  # the result is read from the table of its values
            where = call.where if over_updates or call.value_table is None else flag_of(call.value_table)
            for accumulator in function.accumulators:
                accumulators.setdefault(accumulator.fields[0].name, (where, accumulator))
        self._filtered = list(accumulators.values())
        self._filters = list(dict.fromkeys(where for where, _ in self._filtered))
        self._accumulators = [accumulator for _, accumulator in self._filtered]
        self.weighted = weighted_tables(calls.values(), self._types) if over_updates else ()
        of_values = [field for table in self.weighted for field in table.fields]
        self.state_fields = (*(field for one in self._accumulators for field in one.fields), *of_values)
        self.output_fields = tuple(pa.field(name, one.result_type) for name, one in self._functions.items())
        distinct = {call: self._types[str(call.column)] for call in calls.values() if call.distinct}
        self.distinct = () if over_updates else tuple(DistinctValues(call, type_) for call, type_ in distinct.items())

    def fold(self, keys: pa.Table, rows: pa.Table, state: KeyedState) -> tuple[GroupedKeys, pa.Table]:
        """Return the distinct keys and their new state rows (key columns, then state columns), without storing them.

        Args:
            keys: normalised key columns of the rows, which are also the state's key.
            rows: on-time input rows in plan order, as returned by `flagged`.
        """
        occurring = state.group(keys)
        previous, _ = occurring.find()
        grouped = Grouped(rows, occurring.codes, occurring.keys.num_rows)
        return occurring, self._changed(occurring, self._updated(previous, grouped))

    def value_tables(
        self, key: Sequence[pa.Field], routing_key: Sequence[str], *, expire: bool = False
    ) -> dict[str, StateTable]:
        """Return the tables of the values of distinct counts.

        Args:
            key: key columns of the aggregated groups.
            expire: whether the groups expire.
        """
        return {one.name: one.table(key, routing_key, expires=expire) for one in self.distinct}

    def flagged(
        self, keys: pa.Table, rows: pa.Table, tables: Mapping[str, KeyedState], expires: Ints | None = None
    ) -> pa.Table:
        """Return rows for `fold`, with a flag per distinct count for new values. Store these values in their tables.

        Args:
            keys: key of each row, as for `fold`.
            expires: expiry of each row's group. None: groups never expire.
        """
        for one in self.distinct:
            rows = one.flagged(keys, rows, tables[one.name], expires)
        return rows

    def _updated(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        """Return the new state columns. Each accumulator receives the rows that pass its filter."""
        rows = {where: grouped if where is None else grouped.where(where) for where in self._filters}
        return [column for where, one in self._filtered for column in one.update(previous, rows[where])]

    def _changed(self, occurring: GroupedKeys, columns: Sequence[pa.Array]) -> pa.Table:
        changed = occurring.keys
        for field, column in zip(self.state_fields, columns, strict=True):
            changed = changed.append_column(field, column)
        return changed

    def fold_weighted(self, weighted: WeightedRows, previous: pa.Table) -> list[pa.Array]:
        """Add and retract weighted rows. Return the new columns of the accumulators, which are first in the state.

        Args:
            previous: state row of each key. Null for a new key.
        """
        count, parts = weighted.count, []
        for sign in (1, -1):
            places = np.repeat(np.arange(len(weighted.weights)), np.maximum(sign * weighted.weights, 0))
            parts.append(self.partials(weighted.rows.take(pa.array(places)), weighted.codes[places], count))
        negated = [
            column for one in self._accumulators if isinstance(one, Subtracted) for column in one.negated(parts[1])
        ]
        both = pa.concat_tables([parts[0], pa.table(negated, schema=parts[1].schema)])
        grouped = Grouped(both, np.tile(np.arange(count), 2), count)
        return [column for one in self._accumulators for column in one.merge(previous, grouped)]

    def is_empty(self, state_rows: pa.Table) -> Bools:
        """Return which keys are empty over updates: every added row has been retracted."""
        empty = np.ones(state_rows.num_rows, dtype=np.bool_)
        for field in (field for one in self._accumulators for field in one.fields):
            nothing = ZERO if pa.types.is_binary(field.type) else 0
            empty &= pc.fill_null(pc.equal(state_rows.column(field.name), nothing), True).to_numpy()
        for table in self.weighted:
            empty &= table.is_empty(state_rows)
        return empty

    @property
    def merges(self) -> bool:
        """Whether separately accumulated rows can be merged in any order into the same state, bit by bit."""
        return not self.distinct and all(accumulator.merges for accumulator in self._accumulators)

    def partials(self, rows: pa.Table, codes: Ints, count: int) -> pa.Table:
        """Accumulate rows without previous state. Return one row per key number."""
        none = self._none(count)
        return pa.table(self._updated(none, Grouped(rows, codes, count)), schema=none.schema)

    @property
    def of_no_rows(self) -> pa.Table:
        """Accumulators of one key without rows."""
        rows, none = self._schema.empty_table(), np.empty(0, dtype=np.int64)
        for one in self.distinct:
            rows = rows.append_column(flag_of(one.name), pa.array([], pa.bool_()))
        nothing = self.partials(rows, none, 1)
        for column in (column for table in self.weighted for column in table.of_no_values.itercolumns()):
            nothing = nothing.append_column(self.state_fields[nothing.num_columns], column)
        return nothing

    def merged(self, partials: pa.Table, codes: Ints, count: int) -> pa.Table:
        """Merge partial results in order, without previous state. Return one row per key number."""
        none, grouped = self._none(count), Grouped(partials, codes, count)
        columns = [column for one in self._accumulators for column in one.merge(none, grouped)]
        return pa.table(columns, schema=none.schema)

    def _none(self, count: int) -> pa.Table:
        schema = pa.schema([field for one in self._accumulators for field in one.fields])
        return pa.table([pa.nulls(count, field.type) for field in schema], schema=schema)

    def merge(self, partials: pa.Table, key: Sequence[str], state: KeyedState) -> tuple[GroupedKeys, pa.Table]:
        """Merge the results of `partials`, with their key columns, into state. Return values as in `fold`."""
        occurring = state.group(partials.select(list(key)))
        previous, _ = occurring.find()
        grouped = Grouped(partials, occurring.codes, occurring.keys.num_rows)
        return occurring, self._changed(
            occurring, [column for one in self._accumulators for column in one.merge(previous, grouped)]
        )

    def results(self, state_rows: pa.Table) -> list[Column]:
        """Return one result column per aggregate for state rows. Raises OperatorFailed on overflow."""
        return [function.result(state_rows) for function in self._functions.values()]


def _check_taken_back(named: NamedCall) -> None:
    """Check that an aggregate supports retraction. Raises InvalidRequest: it does not for this type."""
    call = named.call
    if call.column is None:
        return
    if call.weighted_table is not None and pa.types.is_nested(named.type):
        raise InvalidRequest(
            f"operator {named.uid!r}: {named.name} = {call} of type {named.type} is not available in this version over "
            "updates: its rows cannot be taken back. Nothing was changed.",
            hint="Take a scalar out of the column in a `sql` operator.",
        )


def _type_of(uid: str, column: str, schema: pa.Schema) -> pa.DataType:
    if schema.get_field_index(column) < 0:
        raise InvalidRequest(
            f"operator {uid!r}: aggregated column {column!r} is not in its input. Nothing was changed.",
            hint=f"Its input has: {', '.join(schema.names)}.",
        )
    return schema.field(column).type
