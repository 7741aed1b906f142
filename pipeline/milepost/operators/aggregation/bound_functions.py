"""Aggregate functions bound to a column's type: their accumulators and results.

`bound` selects the implementation once, by function and type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import InvalidRequest
from milepost.language import AggregateCall
from milepost.operators.aggregation.accumulators import (
    Accumulator,
    Argument,
    Count,
    ExactSum,
    Extreme,
    FloatSum,
)
from milepost.operators.aggregation.arg_extremes import ArgExtreme, arg_extreme_name
from milepost.operators.aggregation.bool_aggregates import BoolCount, any_or_every
from milepost.operators.aggregation.distinct_values import counted_name
from milepost.operators.aggregation.exact_sums import (
    Sums,
    exact_sums_as_decimal,
    exact_sums_as_float64,
    exact_sums_as_int64,
    stored_sums,
)
from milepost.operators.aggregation.order_free_sums import (
    OrderFreeSum,
    RetractableFloatSum,
    order_free_sums,
    order_free_variances,
)
from milepost.operators.aggregation.variances import Moments, SquareSum, is_exact, variances
from milepost.operators.contract import Bools, OperatorFailed

Column: TypeAlias = pa.ChunkedArray | pa.Array
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NamedCall:
    """An aggregate of the spec.

    Attributes:
        types: types of the columns that it names.
    """

    uid: str
    name: str
    call: AggregateCall
    types: Mapping[str, pa.DataType]

    @property
    def argument(self) -> Argument:
        """Argument of its accumulators."""
        return Argument(self.call.column, self.call.where)

    @property
    def type(self) -> pa.DataType:
        """Type of its column. Only for an aggregate with a column."""
        return self.types[str(self.call.column)]

    @property
    def scale(self) -> int | None:
        """Decimal places of its column. None if the column is not decimal."""
        return self.type.scale if pa.types.is_decimal(self.type) else None

    def refused(self, data_type: pa.DataType) -> InvalidRequest:
        """Return the error for an unsupported type."""
        return InvalidRequest(
            f"operator {self.uid!r}: {self.name} = {self.call} does not work on type {data_type}. Nothing was changed.",
            hint="Cast the column in a `sql` operator.",
        )

    def refuse_overflow(self, limit: str, too_large: Bools) -> None:
        """Check results. Raises OperatorFailed: some keys have a result that is too large."""
        if too_large.any():
            raise OperatorFailed(
                self.uid,
                f"{self.name} = {self.call} is beyond {limit} for {int(too_large.sum())} of {len(too_large)} keys; "
                "cast the column to a wider decimal or a double before it",
            )


class BoundFunction(ABC):
    """An aggregate function over a column of one type.

    Attributes:
        result_type: type of its results.
        accumulators: accumulators that provide its state columns.
    """

    result_type: pa.DataType
    accumulators: tuple[Accumulator, ...]

    @abstractmethod
    def result(self, state_rows: pa.Table) -> Column:
        """Return the result of each state row. Raises OperatorFailed on overflow."""


class Stored(BoundFunction):
    """A function that returns an unchanged state column."""

    def __init__(self, result_type: pa.DataType, accumulator: Accumulator, column: str) -> None:
        self.result_type, self.accumulators, self._column = result_type, (accumulator,), column

    def result(self, state_rows: pa.Table) -> Column:
        return state_rows.column(self._column)


class TruthsOverUpdates(BoundFunction):
    """any and every over updates."""

    def __init__(self, named: NamedCall) -> None:
        self._argument, self._function = named.argument, named.call.function
        self.result_type = named.type
        self.accumulators = (BoolCount(self._argument, True), BoolCount(self._argument, False))

    def result(self, state_rows: pa.Table) -> Column:
        return any_or_every(state_rows, self._argument, self._function)


class Spread(BoundFunction):
    """var and stddev of the sample, as in SQL. Null for fewer than two values."""

    result_type = pa.float64()

    def __init__(self, named: NamedCall, order_free: type[OrderFreeSum] | None) -> None:
        argument = self._argument = named.argument
        self._type, self._is_root = named.type, named.call.function == "stddev"
        self._order_free = order_free is not None and not is_exact(self._type)
        scale = named.scale
        if is_exact(self._type):
            self.accumulators = (Count(argument), ExactSum(argument, scale), SquareSum(argument, scale))
        elif order_free is not None:
            squares = order_free(argument, squares=True, scale=scale)
            self.accumulators = (Count(argument), order_free(argument, scale=scale), squares)
        else:
            self.accumulators = (Count(argument), Moments(argument, scale))

    def result(self, state_rows: pa.Table) -> Column:
        if self._order_free:
            values, none = order_free_variances(state_rows, self._argument)
        else:
            values, none = variances(state_rows, self._argument, self._type)
        return pa.array(np.sqrt(values) if self._is_root else values, pa.float64(), mask=none)


class SumOfFloats(BoundFunction):
    """sum and avg of floats."""

    result_type = pa.float64()

    def __init__(self, named: NamedCall, order_free: type[OrderFreeSum] | None) -> None:
        self._argument, self._order_free = named.argument, order_free is not None
        self._is_mean = named.call.function == "avg"
        total = FloatSum(self._argument) if order_free is None else order_free(self._argument)
        self.accumulators = (Count(self._argument), total)

    def result(self, state_rows: pa.Table) -> Column:
        if self._order_free:
            total = order_free_sums(state_rows, self._argument)
        else:
            total = state_rows.column(f"sum({self._argument.label})").to_numpy()
        count = _count_of(state_rows, self._argument)
        return _mean(total, count) if self._is_mean else pa.array(total, pa.float64(), mask=count == 0)


class ExactTotal(BoundFunction):
    """sum of integers and decimals."""

    def __init__(self, named: NamedCall) -> None:
        self._named = named
        scale = named.scale
        self.result_type = pa.int64() if scale is None else pa.decimal128(38, scale)
        self.accumulators = (Count(named.argument), ExactSum(named.argument, scale))

    def result(self, state_rows: pa.Table) -> Column:
        exact, none = _exact_of(state_rows, self._named), _count_of(state_rows, self._named.argument) == 0
        if pa.types.is_decimal(self.result_type):
            sums, too_large = exact_sums_as_decimal(exact, self.result_type)
            sums = pc.if_else(pa.array(none), pa.scalar(None, self.result_type), sums)
        else:
            values, too_large = exact_sums_as_int64(exact)
            sums = pa.array(values, pa.int64(), mask=none)
        self._named.refuse_overflow(str(self.result_type), too_large)
        return sums


class ExactMean(BoundFunction):
    """avg of integers and decimals."""

    result_type = pa.float64()

    def __init__(self, named: NamedCall) -> None:
        self._named = named
        self.accumulators = (Count(named.argument), ExactSum(named.argument, named.scale))

    def result(self, state_rows: pa.Table) -> Column:
        exact, scale = _exact_of(state_rows, self._named), self._named.scale
        self._named.refuse_overflow("128 bits", ~exact.in_128_bits)
        total = exact_sums_as_float64(exact)
        return _mean(total if scale is None else total / 10.0**scale, _count_of(state_rows, self._named.argument))


def bound(named: NamedCall, *, over_updates: bool, any_order: bool) -> BoundFunction:
    """Return the function of an aggregate for the types of its columns.

    Args:
        over_updates: whether input rows may be retracted.
        any_order: whether separately accumulated rows are merged in another order than that of the rows.
    Raises:
        InvalidRequest: the aggregate does not support a column's type.
    """
    call, argument = named.call, named.argument
    _check_types(named)
    order_free = RetractableFloatSum if over_updates else OrderFreeSum if any_order else None
    if call.distinct:
        return Stored(pa.int64(), Count(Argument(None), counted_name(call)), counted_name(call))
    if call.function == "count":
        return Stored(pa.int64(), Count(argument), f"count({argument.label})")
    if call.by is not None:
        is_largest = call.function == "arg_max"
        accumulator = ArgExtreme(argument, call.by, (named.type, named.types[call.by]), largest=is_largest)
        return Stored(named.type, accumulator, arg_extreme_name(argument, call.by, largest=is_largest))
    if call.function in _EXTREMES:
        if over_updates and call.function in ("any", "every"):
            return TruthsOverUpdates(named)
        extreme = _EXTREMES[call.function]
        stored = Extreme(argument, named.type, largest=extreme == "max")
        return Stored(named.type, stored, f"{extreme}({argument.label})")
    if call.function in ("var", "stddev"):
        return Spread(named, order_free)
    if pa.types.is_floating(named.type):
        return SumOfFloats(named, order_free)
    return ExactTotal(named) if call.function == "sum" else ExactMean(named)


_EXTREMES = {"min": "min", "max": "max", "every": "min", "any": "max"}
"""Functions that return a minimum or maximum. True is greater than false."""


def _check_types(named: NamedCall) -> None:
    """Check column types. Raises InvalidRequest: the aggregate does not support one of them."""
    call, types = named.call, named.types
    if call.where is not None and not pa.types.is_boolean(types[call.where]):
        raise named.refused(types[call.where])
    if call.by is not None:
        if pa.types.is_nested(types[call.by]):
            raise named.refused(types[call.by])
    elif call.distinct or call.function in ("min", "max"):
        if pa.types.is_nested(named.type):
            raise named.refused(named.type)
    elif call.function in ("any", "every"):
        if not pa.types.is_boolean(named.type):
            raise named.refused(named.type)
    elif call.function != "count" and not _is_number(named.type):
        raise named.refused(named.type)


def _is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type))


def _count_of(state_rows: pa.Table, argument: Argument) -> npt.NDArray[np.int64]:
    count: npt.NDArray[np.int64] = state_rows.column(f"count({argument.label})").to_numpy()
    return count


def _exact_of(state_rows: pa.Table, named: NamedCall) -> Sums:
    return stored_sums(state_rows, f"sum({named.argument.label})")


def _mean(total: Floats, count: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(total / np.maximum(count, 1), pa.float64(), mask=count == 0)
