"""The aggregates of one operator: which accumulators they share, and their results in Spark's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import InvalidRequest
from milepost.jobspec.values import AggregateCall
from milepost.operators.aggregation.accumulators import Accumulator, Argument, Count, Grouped, Subtracted
from milepost.operators.aggregation.bound_functions import BoundFunction, Column, NamedCall, bound
from milepost.operators.aggregation.distinct_values import DistinctValues, flag_of
from milepost.operators.aggregation.value_tables import WeightedRows, weighted_tables
from milepost.operators.aggregation.variances import is_exact
from milepost.operators.contract import Bools, GroupedKeys, Ints, KeyedState, StateTable

ROWS_COLUMN = "__rows"
"""How many input rows a partial result stands for, and over updates how many a key has."""


def timed_calls(uid: str, calls: Mapping[str, AggregateCall], event_time: str | None) -> dict[str, AggregateCall]:
    """Return an operator's aggregates, first and last over its event time. Raises InvalidRequest: it has none."""
    try:
        return {name: call.timed(event_time) for name, call in calls.items()}
    except ValueError as problem:
        raise InvalidRequest(f"operator {uid!r}: {problem}. Nothing was changed.") from None


class Aggregates:
    """Folds rows into per-key accumulators and reads results from them.

    Attributes:
        state_fields: state columns of all accumulators. distinct: the values of distinct counts, of each its own.
        weighted: tables of the values that are there, over updates.
        output_fields: one per aggregate, by its name in the spec. count and sums of integers: int64; sums of decimals:
            decimal(38, s); sums of floats, averages and deviations: float64; any and every: bool; others: the column's.
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
        over_updates: whether rows are taken back; then `ROWS_COLUMN` is in the state, and there may be `weighted`.
        any_order: whether rows that are accumulated apart are merged in an order that is none of theirs.

        Raises InvalidRequest: a column is not there or of a type that does not work.
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
                continue  # its values are kept, and the table tells its result
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
        """Return the keys that occur, and the new accumulators of each: key columns, then state columns.

        Args:
            keys: normalised key columns of the rows, which are also the state's key.
            rows: on-time input rows, in plan order, as `flagged` returns them.
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
            key: columns of what is aggregated. expire: whether it is forgotten.
        """
        return {one.name: one.table(key, routing_key, expires=expire) for one in self.distinct}

    def flagged(
        self, keys: pa.Table, rows: pa.Table, tables: Mapping[str, KeyedState], expires: Ints | None = None
    ) -> pa.Table:
        """Return rows for `fold`: with a flag where a value is the first of its kind, which its table has from now on.

        Args:
            keys: of each row, as for `fold`. expires: when what each row's key is of is forgotten; None: never.
        """
        for one in self.distinct:
            rows = one.flagged(keys, rows, tables[one.name], expires)
        return rows

    def _updated(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        """Return the new state columns: each accumulator takes up the rows that its filter lets through."""
        rows = {where: grouped if where is None else grouped.where(where) for where in self._filters}
        return [column for where, one in self._filtered for column in one.update(previous, rows[where])]

    def _changed(self, occurring: GroupedKeys, columns: Sequence[pa.Array]) -> pa.Table:
        changed = occurring.keys
        for field, column in zip(self.state_fields, columns, strict=True):
            changed = changed.append_column(field, column)
        return changed

    def fold_weighted(self, weighted: WeightedRows, previous: pa.Table) -> list[pa.Array]:
        """Return the new state columns that rows are added to and subtracted from, which come first in the state.

        Args:
            previous: the state row of each key; null where there is none.
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
        """Return which keys have nothing left over updates: what was added was taken back, all of it."""
        empty = np.ones(state_rows.num_rows, dtype=np.bool_)
        for field in (field for one in self._accumulators for field in one.fields):
            empty &= pc.fill_null(state_rows.column(field.name), 0).to_numpy() == 0
        for table in self.weighted:
            empty &= table.is_empty(state_rows)
        return empty

    @property
    def merges(self) -> bool:
        """Whether rows may be accumulated apart, in any order, and merged: the same state, to the bit."""
        return not self.distinct and all(accumulator.merges for accumulator in self._accumulators)

    def partials(self, rows: pa.Table, codes: Ints, count: int) -> pa.Table:
        """Return the accumulators of rows alone, without any state: one row per key number."""
        none = self._none(count)
        return pa.table(self._updated(none, Grouped(rows, codes, count)), schema=none.schema)

    @property
    def of_no_rows(self) -> pa.Table:
        """The accumulators of one key that has no row."""
        rows, none = self._schema.empty_table(), np.empty(0, dtype=np.int64)
        for one in self.distinct:
            rows = rows.append_column(flag_of(one.name), pa.array([], pa.bool_()))
        nothing = self.partials(rows, none, 1)
        for column in (column for table in self.weighted for column in table.of_no_values.itercolumns()):
            nothing = nothing.append_column(self.state_fields[nothing.num_columns], column)
        return nothing

    def merged(self, partials: pa.Table, codes: Ints, count: int) -> pa.Table:
        """Return what accumulators come to together, without any state: one row per number; taken in their order."""
        none, grouped = self._none(count), Grouped(partials, codes, count)
        columns = [column for one in self._accumulators for column in one.merge(none, grouped)]
        return pa.table(columns, schema=none.schema)

    def _none(self, count: int) -> pa.Table:
        schema = pa.schema([field for one in self._accumulators for field in one.fields])
        return pa.table([pa.nulls(count, field.type) for field in schema], schema=schema)

    def merge(self, partials: pa.Table, key: Sequence[str], state: KeyedState) -> tuple[GroupedKeys, pa.Table]:
        """As `fold`, for rows that `partials` made, with their key columns."""
        occurring = state.group(partials.select(list(key)))
        previous, _ = occurring.find()
        grouped = Grouped(partials, occurring.codes, occurring.keys.num_rows)
        return occurring, self._changed(
            occurring, [column for one in self._accumulators for column in one.merge(previous, grouped)]
        )

    def results(self, state_rows: pa.Table) -> list[Column]:
        """Return one column per aggregate for rows that have the state columns. Raises OperatorFailed on overflow."""
        return [function.result(state_rows) for function in self._functions.values()]


def _check_taken_back(named: NamedCall) -> None:
    """Raises InvalidRequest: rows cannot be taken back from an aggregate of this type."""
    call = named.call
    if call.column is None:
        return
    if (call.weighted_table is not None and pa.types.is_nested(named.type)) or _rounds(call, named.type):
        raise InvalidRequest(
            f"operator {named.uid!r}: {named.name} = {call} of type {named.type} is not available in this version over "
            "updates: its rows cannot be taken back. Nothing was changed.",
            hint="Take a scalar out of a nested column, and sum decimals instead of floats, in a `sql` operator.",
        )


def _type_of(uid: str, column: str, schema: pa.Schema) -> pa.DataType:
    if schema.get_field_index(column) < 0:
        raise InvalidRequest(
            f"operator {uid!r}: aggregated column {column!r} is not in its input. Nothing was changed.",
            hint=f"Its input has: {', '.join(schema.names)}.",
        )
    return schema.field(column).type


def _rounds(call: AggregateCall, data_type: pa.DataType) -> bool:
    """Return whether sums of floats decide a result."""
    if call.function in ("var", "stddev"):
        return not is_exact(data_type)
    return call.function in ("sum", "avg") and bool(pa.types.is_floating(data_type))
