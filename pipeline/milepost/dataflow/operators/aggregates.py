"""The aggregates of one operator: which accumulators they share, and their results in Spark's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.dataflow.operators.accumulators import (
    Accumulator,
    Count,
    ExactSum,
    Extreme,
    FloatSum,
    Grouped,
    Sums,
    exact_sums_as_decimal,
    exact_sums_as_float64,
    exact_sums_as_int64,
    stored_sums,
)
from milepost.dataflow.operators.contract import Bools, GroupedKeys, Ints, KeyedState, OperatorFailed
from milepost.protocol.records.errors import InvalidRequest
from milepost.spec.values.aggregates import AggregateCall


class Aggregates:
    """Folds rows into per-key accumulators and reads results from them.

    Attributes:
        state_fields: state columns of all accumulators.
        output_fields: one per aggregate, by its name in the spec. count and sums of integers: int64; sums of decimals:
            decimal(38, s); sums of floats and all averages: float64; min and max: the column's type.
    """

    def __init__(self, uid: str, calls: Mapping[str, AggregateCall], schema: pa.Schema) -> None:
        self._uid = uid
        self._calls = dict(calls)
        self._types = {
            call.column: _type_of(uid, call.column, schema) for call in calls.values() if call.column is not None
        }
        accumulators: dict[str, Accumulator] = {}
        outputs: list[pa.Field] = []
        for name, call in self._calls.items():
            outputs.append(pa.field(name, self._result_type(name, call)))
            for accumulator in self._needed(call):
                accumulators.setdefault(accumulator.fields[0].name, accumulator)
        self._accumulators = list(accumulators.values())
        self.state_fields = tuple(field for accumulator in self._accumulators for field in accumulator.fields)
        self.output_fields = tuple(outputs)

    def fold(self, keys: pa.Table, rows: pa.Table, state: KeyedState) -> tuple[GroupedKeys, pa.Table]:
        """Return the keys that occur, and the new accumulators of each: key columns, then state columns.

        Args:
            keys: normalised key columns of the rows, which are also the state's key.
            rows: on-time input rows, in plan order.
        """
        occurring = state.group(keys)
        previous, _ = occurring.find()
        grouped = Grouped(rows, occurring.codes, occurring.keys.num_rows)
        return occurring, self._changed(
            occurring, [column for one in self._accumulators for column in one.update(previous, grouped)]
        )

    def _changed(self, occurring: GroupedKeys, columns: Sequence[pa.Array]) -> pa.Table:
        changed = occurring.keys
        for field, column in zip(self.state_fields, columns, strict=True):
            changed = changed.append_column(field, column)
        return changed

    @property
    def merges(self) -> bool:
        """Whether rows may be accumulated apart, in any order, and merged: the same state, to the bit."""
        return all(accumulator.merges for accumulator in self._accumulators)

    def partials(self, rows: pa.Table, codes: Ints, count: int) -> pa.Table:
        """Return the accumulators of rows alone, without any state: one row per key number."""
        none, grouped = self._none(count), Grouped(rows, codes, count)
        columns = [column for one in self._accumulators for column in one.update(none, grouped)]
        return pa.table(columns, schema=none.schema)

    def merged(self, partials: pa.Table, codes: Ints, count: int) -> pa.Table:
        """Return what accumulators come to together, without any state: one row per number; taken in their order."""
        none, grouped = self._none(count), Grouped(partials, codes, count)
        columns = [column for one in self._accumulators for column in one.merge(none, grouped)]
        return pa.table(columns, schema=none.schema)

    def _none(self, count: int) -> pa.Table:
        schema = pa.schema(self.state_fields)
        return pa.table([pa.nulls(count, field.type) for field in schema], schema=schema)

    def merge(self, partials: pa.Table, key: Sequence[str], state: KeyedState) -> tuple[GroupedKeys, pa.Table]:
        """As `fold`, for rows that `partials` made, with their key columns."""
        occurring = state.group(partials.select(list(key)))
        previous, _ = occurring.find()
        grouped = Grouped(partials, occurring.codes, occurring.keys.num_rows)
        return occurring, self._changed(
            occurring, [column for one in self._accumulators for column in one.merge(previous, grouped)]
        )

    def results(self, state_rows: pa.Table) -> list[pa.ChunkedArray | pa.Array]:
        """Return one column per aggregate for rows that have the state columns. Raises OperatorFailed on overflow."""
        return [self._result(name, call, state_rows) for name, call in self._calls.items()]

    def _needed(self, call: AggregateCall) -> Sequence[Accumulator]:
        if call.function == "count":
            return (Count(call.column),)
        column = str(call.column)
        data_type = self._types[column]
        if call.function in ("min", "max"):
            return (Extreme(column, data_type, largest=call.function == "max"),)
        if pa.types.is_floating(data_type):
            return (Count(column), FloatSum(column))
        return (Count(column), ExactSum(column, data_type.scale if pa.types.is_decimal(data_type) else None))

    def _result_type(self, name: str, call: AggregateCall) -> pa.DataType:
        if call.function == "count":
            return pa.int64()
        data_type = self._types[str(call.column)]
        if call.function in ("min", "max") and not pa.types.is_nested(data_type):
            return data_type
        if call.function == "avg" and _is_number(data_type):
            return pa.float64()
        if call.function == "sum" and _is_number(data_type):
            if pa.types.is_decimal(data_type):
                return pa.decimal128(38, data_type.scale)
            return pa.float64() if pa.types.is_floating(data_type) else pa.int64()
        raise InvalidRequest(
            f"operator {self._uid!r}: {name} = {call} does not work on type {data_type}. Nothing was changed.",
            hint="Cast the column in a `sql` operator.",
        )

    def _result(self, name: str, call: AggregateCall, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
        if call.function == "count":
            return rows.column(f"count({call.column or '*'})")
        if call.function in ("min", "max"):
            return rows.column(f"{call.function}({call.column})")
        count = rows.column(f"count({call.column})").to_numpy()
        none = count == 0
        data_type = self._types[str(call.column)]
        if pa.types.is_floating(data_type):
            total = rows.column(f"sum({call.column})").to_numpy()
        else:
            sums = stored_sums(rows, str(call.column))
            if call.function == "sum":
                return self._exact_sum(name, call, sums, none)
            self._refuse_overflow(name, call, "128 bits", ~sums.in_128_bits)
            total = exact_sums_as_float64(sums)
            if pa.types.is_decimal(data_type):
                total = total / 10.0**data_type.scale
        if call.function == "sum":
            return pa.array(total, pa.float64(), mask=none)
        return pa.array(total / np.maximum(count, 1), pa.float64(), mask=none)

    def _exact_sum(self, name: str, call: AggregateCall, exact: Sums, none: Bools) -> pa.Array:
        result_type = self._result_type(name, call)
        if pa.types.is_decimal(result_type):
            sums, too_large = exact_sums_as_decimal(exact, result_type)
            sums = pc.if_else(pa.array(none), pa.scalar(None, result_type), sums)
        else:
            values, too_large = exact_sums_as_int64(exact)
            sums = pa.array(values, pa.int64(), mask=none)
        self._refuse_overflow(name, call, str(result_type), too_large)
        return sums

    def _refuse_overflow(self, name: str, call: AggregateCall, limit: str, too_large: Bools) -> None:
        if too_large.any():
            raise OperatorFailed(
                self._uid,
                f"{name} = {call} is beyond {limit} for {int(too_large.sum())} of {len(too_large)} keys; "
                "cast the column to a wider decimal or a double before it",
            )


def _type_of(uid: str, column: str, schema: pa.Schema) -> pa.DataType:
    if schema.get_field_index(column) < 0:
        raise InvalidRequest(
            f"operator {uid!r}: aggregated column {column!r} is not in its input. Nothing was changed.",
            hint=f"Its input has: {', '.join(schema.names)}.",
        )
    return schema.field(column).type


def _is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type))
