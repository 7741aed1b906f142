"""Accumulators of aggregates, vectorised over rows and keys.

Results do not depend on how rows were cut into buffers and epochs. Integer and decimal sums are exact: 128 bits in two
int64 columns, for decimals 192 bits in three. Float sums add row by row in plan order to the stored sum. Minima and
maxima use a total order in which -0.0 is less than 0.0 and NaN is the largest value.

Aggregates over the same column share accumulators. State columns are named by their argument, which is the column, or
the column and its filter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.language import argument_label
from milepost.operators.aggregation.exact_sums import (
    Sums,
    stored_numbers,
    stored_sums,
    sums_by_key,
    sums_of_values,
)
from milepost.operators.contract import TYPE_OF, Bools, Ints
from milepost.operators.rows.row_order import float_order, floats_of_order
from milepost.protocol.records import BEGINS_NULL, SCALE


@dataclass(frozen=True, slots=True)
class Grouped:
    """An epoch's rows with the number of each row's key.

    Attributes:
        rows: input rows.
        codes: key number per row, below `count`.
        count: number of keys.
    """

    rows: pa.Table
    codes: Ints
    count: int

    def where(self, column: str) -> Grouped:
        """Return the rows in which a column is true, with the same keys."""
        keep = pc.fill_null(self.rows.column(column), False)
        return Grouped(self.rows.filter(keep), self.codes[keep.to_numpy().astype(np.bool_)], self.count)

    def valid(self, column: str) -> tuple[pa.Array, Ints]:
        """Return the non-null values of a column and their key numbers, in row order."""
        values = self.rows.column(column)
        if values.null_count:
            keep = values.is_valid()
            return _one_chunk(values.filter(keep)), self.codes[keep.to_numpy().astype(np.bool_)]
        return _one_chunk(values), self.codes


def _one_chunk(values: pa.ChunkedArray) -> pa.Array:
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


@dataclass(frozen=True, slots=True)
class Argument:
    """Argument of an accumulator: the values of a column, or the rows themselves, optionally filtered.

    Attributes:
        column: input column. None: the rows themselves.
        where: boolean column that selects the rows. None: all rows.
    """

    column: str | None
    where: str | None = None

    @property
    def label(self) -> str:
        """Name of the argument in state columns."""
        return argument_label(self.column, self.where)

    def of_its_type(self, field: pa.Field) -> pa.Field:
        """Return a state field of the column's type, with metadata if its name does not identify the column."""
        return field if self.where is None else typed_by(field, str(self.column))


def typed_by(field: pa.Field, column: str) -> pa.Field:
    """Return a state field with metadata that names the input column which determines its type."""
    return field.with_metadata({**(field.metadata or {}), TYPE_OF: column.encode()})


class Accumulator(Protocol):
    """State columns of one accumulator, and their update.

    Attributes:
        merges: whether merging separately accumulated parts gives the same bits as accumulating the rows.
    """

    fields: tuple[pa.Field, ...]
    merges: bool

    def update(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        """Return the new state columns.

        Args:
            previous: one row per key in key-number order, with this accumulator's columns. Null for a new key.
        """

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        """Return the new state columns. Rows of `partials` have this accumulator's columns and are applied in order."""


@runtime_checkable
class Subtracted(Accumulator, Protocol):
    """An accumulator that supports exact retraction of rows."""

    def negated(self, partials: pa.Table) -> list[pa.Array]:
        """Return the state columns of retracted rows."""


class Count:
    """Counts rows, or the non-null values of a column. State: one int64. name: state column, if not the default."""

    def __init__(self, argument: Argument, name: str | None = None) -> None:
        self.column = argument.column
        self.name = name or f"count({argument.label})"
        self.fields: tuple[pa.Field, ...] = (pa.field(self.name, pa.int64()),)
        self.merges = True

    def update(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        codes = grouped.codes if self.column is None else grouped.valid(self.column)[1]
        counted = np.bincount(codes, minlength=grouped.count).astype(np.int64)
        return [pa.array(stored_numbers(previous, self.name) + counted)]

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        total = stored_numbers(previous, self.name).copy()
        np.add.at(total, partials.codes, stored_numbers(partials.rows, self.name))
        return [pa.array(total)]

    def negated(self, partials: pa.Table) -> list[pa.Array]:
        return [pa.array(-stored_numbers(partials, self.name))]


class ExactSum:
    """Sums integers or decimals exactly. State: two's complement in int64 columns, the lowest 64 bits first.

    Integers have two columns. Decimals have three, because a sum may exceed 128 bits and return before it is emitted.

    Args:
        scale: decimal places of the values; None for integers.
    """

    def __init__(self, argument: Argument, scale: int | None) -> None:
        self.column = str(argument.column)
        self.name = f"sum({argument.label})"
        low = argument.of_its_type(pa.field(f"{self.name}.low", pa.int64(), metadata={SCALE: str(scale or 0)}))
        high = pa.field(f"{self.name}.high", pa.int64())
        top = pa.field(f"{self.name}.top", pa.int64(), metadata={BEGINS_NULL: "1"})
        self.fields: tuple[pa.Field, ...] = (low, high) if scale is None else (low, high, top)
        self.merges = True

    def update(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        values, codes = grouped.valid(self.column)
        return self._plus(previous, sums_of_values(values, codes, grouped.count))

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        return self._plus(previous, sums_by_key(stored_sums(partials.rows, self.name), partials.codes, partials.count))

    def negated(self, partials: pa.Table) -> list[pa.Array]:
        return stored_sums(partials, self.name).negated().columns()[: len(self.fields)]

    def _plus(self, previous: pa.Table, added: Sums) -> list[pa.Array]:
        return stored_sums(previous, self.name).plus(added).columns()[: len(self.fields)]


class FloatSum:
    """Sums floats in row order, starting from the stored sum. State: one float64."""

    def __init__(self, argument: Argument) -> None:
        self.column = str(argument.column)
        self.name = f"sum({argument.label})"
        self.fields: tuple[pa.Field, ...] = (argument.of_its_type(pa.field(self.name, pa.float64())),)
        self.merges = False  # the rounding of a sum of sums depends on the merge order

    def update(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        return self._added(previous, *grouped.valid(self.column))

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        return self._added(previous, *partials.valid(self.name))

    def _added(self, previous: pa.Table, values: pa.Array, codes: Ints) -> list[pa.Array]:
        total = pc.fill_null(previous.column(self.name), 0.0).to_numpy().copy()
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(total, codes, pc.cast(values, pa.float64()).to_numpy())
        return [pa.array(total)]


class Extreme:
    """Stores the smallest or largest value of a column. State: one value of the column's type."""

    def __init__(self, argument: Argument, data_type: pa.DataType, largest: bool) -> None:
        self.column = str(argument.column)
        self.largest = largest
        self.name = f"{'max' if largest else 'min'}({argument.label})"
        self.fields: tuple[pa.Field, ...] = (argument.of_its_type(pa.field(self.name, data_type)),)
        self.merges = True

    def update(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        return self._fold(previous, *grouped.valid(self.column), grouped.count)

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        return self._fold(previous, *partials.valid(self.name), partials.count)

    def _fold(self, previous: pa.Table, values: pa.Array, codes: Ints, count: int) -> list[pa.Array]:
        stored = previous.column(self.name).combine_chunks()
        stored = pa.concat_arrays(stored.chunks) if isinstance(stored, pa.ChunkedArray) else stored
        known = stored.is_valid().to_numpy(zero_copy_only=False)
        if _has_numbers(stored.type):
            return [self._by_number(stored, known, values.cast(stored.type), codes)]
        candidates = pa.concat_arrays([stored.filter(pa.array(known)), values.cast(stored.type)])
        owners = np.concatenate([np.flatnonzero(known), codes])
        ranks = _ranks(candidates)
        best = np.full(count, -1 if self.largest else len(candidates), dtype=np.int64)
        (np.maximum if self.largest else np.minimum).at(best, owners, ranks)
        seen = np.zeros(count, dtype=np.bool_)
        seen[owners] = True
        by_rank = np.empty(len(candidates), dtype=np.int64)
        by_rank[ranks] = np.arange(len(candidates))
        chosen = np.zeros(count, dtype=np.int64)
        chosen[seen] = by_rank[best[seen]]
        return [candidates.take(pa.array(chosen, mask=~seen))]

    def _by_number(self, stored: pa.Array, known: Bools, values: pa.Array, codes: Ints) -> pa.Array:
        bounds = np.iinfo(np.int64)
        best = np.full(len(stored), bounds.min if self.largest else bounds.max, dtype=np.int64)
        best[known] = _numbers(stored.drop_null())
        (np.maximum if self.largest else np.minimum).at(best, codes, _numbers(values))
        known = known.copy()
        known[codes] = True
        return _of_numbers(np.where(known, best, 0), ~known, stored.type)


_STORAGE = {32: pa.int32(), 64: pa.int64()}
"""Storage types of dates and timestamps, by width in bits."""


def _has_numbers(data_type: pa.DataType) -> bool:
    """Return whether int64 numbers can represent the values and their order."""
    signed = pa.types.is_integer(data_type) and data_type != pa.uint64()
    is_time = pa.types.is_date(data_type) or pa.types.is_timestamp(data_type)
    return bool(signed or is_time or pa.types.is_floating(data_type))


def _numbers(values: pa.Array) -> Ints:
    """Return int64 numbers that sort as the non-null values do. For floats, -0.0 is before 0.0, and NaN is last."""
    if pa.types.is_floating(values.type):
        return float_order(values).to_numpy()
    if pa.types.is_temporal(values.type):
        values = values.view(_STORAGE[values.type.bit_width])
    return values.cast(pa.int64()).to_numpy()


def _of_numbers(numbers: Ints, nulls: Bools, data_type: pa.DataType) -> pa.Array:
    """Return the values that `_numbers` maps to these numbers."""
    if pa.types.is_floating(data_type):
        return pa.array(floats_of_order(numbers), mask=nulls).cast(data_type)
    whole = pa.array(numbers, mask=nulls)
    if pa.types.is_temporal(data_type):
        return whole.cast(_STORAGE[data_type.bit_width]).view(data_type)
    return whole.cast(data_type)


def _ranks(values: pa.Array) -> Ints:
    """Return the position of each value in the total order. Of equal values the earlier one is first.

    ["b", "a", "b"]   ->   [1, 0, 2]
    """
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        encoded = pc.dictionary_encode(values)
        keys = _ranks_of_order(pc.sort_indices(encoded.dictionary))[encoded.indices.to_numpy()]
        return _ranks_of_order(np.argsort(keys, kind="stable"))
    return _ranks_of_order(pc.sort_indices(values))


def _ranks_of_order(order: pa.Array | Ints) -> Ints:
    positions = np.asarray(order).astype(np.int64)
    ranks = np.empty(len(positions), dtype=np.int64)
    ranks[positions] = np.arange(len(positions))
    return ranks
