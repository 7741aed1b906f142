"""Accumulators: how one aggregate's state takes up an epoch's rows, vectorised over rows and keys.

Results do not depend on how rows were cut into buffers and epochs: integer and decimal sums are exact (128 bits in two
int64 columns, for decimals 192 bits in three), float sums add row by row in plan order from the stored sum, minima and
maxima follow a total order in which NaN is the largest (as in Spark SQL). Aggregates over a column share accumulators.
State columns are called by their argument, which is the column; of a filtered one, column and filter.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.dataflow.operators.contract import BEGINS_NULL, SCALE, TYPE_OF, Bools, Ints
from milepost.spec.values.aggregates import argument_label

Words: TypeAlias = npt.NDArray[np.uint64]

_LOW_32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_63 = np.int64(63)

_OVERFLOWED = np.int64(2**63 - 1)
"""High part of a sum that left 128 bits before there was a top part; no sum that fits has it."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """An epoch's rows with the number of each row's key.

    Attributes:
        rows: input rows. codes: key number per row, below count.
    """

    rows: pa.Table
    codes: Ints
    count: int

    def where(self, column: str) -> Grouped:
        """Return the rows in which a column is true, of the same keys."""
        keep = pc.fill_null(self.rows.column(column), False)
        return Grouped(self.rows.filter(keep), self.codes[keep.to_numpy().astype(np.bool_)], self.count)

    def valid(self, column: str) -> tuple[pa.Array, Ints]:
        """Return the non-null values of a column, and their keys' numbers, in row order."""
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
    """What an accumulator takes up: the values of a column, perhaps only of some rows.

    Attributes:
        column: of the input; None: rows themselves. where: column that is true in those rows; None: in all.
    """

    column: str | None
    where: str | None = None

    @property
    def label(self) -> str:
        """What it is called in state."""
        return argument_label(self.column, self.where)

    def of_its_type(self, field: pa.Field) -> pa.Field:
        """Return a state field that is of the column's type, and says so where its name does not tell."""
        return field if self.where is None else typed_by(field, str(self.column))


def typed_by(field: pa.Field, column: str) -> pa.Field:
    """Return a state field that says of which input column it tells the type."""
    return field.with_metadata({**(field.metadata or {}), TYPE_OF: column.encode()})


class Accumulator(Protocol):
    """State columns of one accumulator and how they take up rows.

    Attributes:
        merges: whether what was accumulated apart can be taken up as the rows themselves would be, to the bit.
    """

    fields: tuple[pa.Field, ...]
    merges: bool

    def update(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        """Return the new state columns.

        Args:
            previous: one row per key in the order of their numbers, with this accumulator's columns; null = new key.
        """

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        """Return the new state columns; rows of `partials` have this accumulator's columns, and are taken in order."""


@runtime_checkable
class Subtracted(Accumulator, Protocol):
    """An accumulator from which rows can be taken back, and nothing is left of them."""

    def negated(self, partials: pa.Table) -> list[pa.Array]:
        """Return the state columns of rows that are taken back."""


class Count:
    """Counts rows, or the non-null values of a column. State: one int64, under a name if it is given."""

    def __init__(self, argument: Argument, name: str | None = None) -> None:
        self.column = argument.column
        self.name = name or f"count({argument.label})"
        self.fields: tuple[pa.Field, ...] = (pa.field(self.name, pa.int64()),)
        self.merges = True

    def update(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        codes = grouped.codes if self.column is None else grouped.valid(self.column)[1]
        counted = np.bincount(codes, minlength=grouped.count).astype(np.int64)
        return [pa.array(_stored(previous, self.name) + counted)]

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        total = _stored(previous, self.name).copy()
        np.add.at(total, partials.codes, _stored(partials.rows, self.name))
        return [pa.array(total)]

    def negated(self, partials: pa.Table) -> list[pa.Array]:
        return [pa.array(-_stored(partials, self.name))]


@dataclass(frozen=True, slots=True)
class Sums:
    """Exact sums of 192 bits, two's complement: lowest 64 bits, the next, and the rest with the sign."""

    low: Words
    high: Words
    top: Ints

    def plus(self, other: Sums) -> Sums:
        low = self.low + other.low
        carry = (low < self.low).astype(np.uint64)
        high = self.high + other.high
        carried = (high < self.high).astype(np.int64)
        high = high + carry
        carried += (carry > high).astype(np.int64)
        return Sums(low, high, self.top + other.top + carried)

    def columns(self) -> list[pa.Array]:
        """Return its parts as state has them, the lowest first."""
        return [pa.array(part) for part in (self.low.view(np.int64), self.high.view(np.int64), self.top)]

    def negated(self) -> Sums:
        low, high = ~self.low + np.uint64(1), ~self.high + (self.low == 0).astype(np.uint64)
        return Sums(low, high, ~self.top + ((self.low == 0) & (self.high == 0)).astype(np.int64))

    @property
    def in_128_bits(self) -> Bools:
        """Which of them need no more."""
        within: Bools = self.top == self.high.view(np.int64) >> _63
        return within


def stored_sums(rows: pa.Table, name: str) -> Sums:
    """Return sums as state has them under a name; one that was stored without its top part has the sign there.

    A sum that had left 128 bits then stays beyond them.
    """
    low, high = _stored(rows, f"{name}.low"), _stored(rows, f"{name}.high")
    top = high >> _63
    if f"{name}.top" in rows.column_names:
        stored = rows.column(f"{name}.top")
        without = stored.is_null().to_numpy()
        beyond = without & (high == _OVERFLOWED)
        top = np.where(without, top, _stored(rows, f"{name}.top"))
        top[beyond] = _OVERFLOWED >> np.int64(1)
    return Sums(low.view(np.uint64), high.view(np.uint64), top)


class ExactSum:
    """Sums integers or decimals exactly. State: two's complement in int64 columns, the lowest 64 bits first.

    Two columns for integers; three for decimals, whose sums may leave 128 bits and come back before they are given out.

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
        if not pa.types.is_decimal(values.type) and _fit_in_64_bits(values):
            return self._plus(previous, _whole(pc.cast(values, pa.int64()).to_numpy(), codes, grouped.count))
        return self._plus(previous, sums_by_key(_wide(values), codes, grouped.count))

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        return self._plus(previous, sums_by_key(stored_sums(partials.rows, self.name), partials.codes, partials.count))

    def negated(self, partials: pa.Table) -> list[pa.Array]:
        return stored_sums(partials, self.name).negated().columns()[: len(self.fields)]

    def _plus(self, previous: pa.Table, added: Sums) -> list[pa.Array]:
        return stored_sums(previous, self.name).plus(added).columns()[: len(self.fields)]


def _whole(values: Ints, codes: Ints, count: int) -> Sums:
    """Return the sum for each key of integers whose sums fit in int64."""
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, codes, values)
    sign = total >> _63
    return Sums(total.view(np.uint64), sign.view(np.uint64), sign)


def sums_by_key(values: Sums, codes: Ints, count: int) -> Sums:
    """Return the sum of values for each key."""
    # Sums of 32-bit limbs cannot overflow int64 below 2^31 rows; carries are settled once per key.
    limbs = np.zeros((4, count), dtype=np.uint64)
    for at, word in enumerate((values.low, values.high)):
        np.add.at(limbs[2 * at], codes, word & _LOW_32)
        np.add.at(limbs[2 * at + 1], codes, word >> _32)
    top = np.zeros(count, dtype=np.int64)
    np.add.at(top, codes, values.top)
    for lower, upper in itertools.pairwise(limbs):
        upper += lower >> _32
    top += (limbs[3] >> _32).view(np.int64)
    low, high = ((upper << _32) | (lower & _LOW_32) for lower, upper in (limbs[:2], limbs[2:]))
    return Sums(low, high, top)


class FloatSum:
    """Sums floats in row order, starting from the stored sum. State: one float64."""

    def __init__(self, argument: Argument) -> None:
        self.column = str(argument.column)
        self.name = f"sum({argument.label})"
        self.fields: tuple[pa.Field, ...] = (argument.of_its_type(pa.field(self.name, pa.float64())),)
        self.merges = False  # a sum of sums is rounded otherwise: in the order in which they are merged

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
    """Keeps the smallest or largest value of a column. State: one value of the column's type."""

    def __init__(self, argument: Argument, data_type: pa.DataType, largest: bool) -> None:
        self.column = str(argument.column)
        self.largest = largest
        self.name = f"{'max' if largest else 'min'}({argument.label})"
        self.fields: tuple[pa.Field, ...] = (argument.of_its_type(pa.field(self.name, data_type)),)
        self.merges = True

    def update(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        return self._taken_up(previous, *grouped.valid(self.column), grouped.count)

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        return self._taken_up(previous, *partials.valid(self.name), partials.count)

    def _taken_up(self, previous: pa.Table, values: pa.Array, codes: Ints, count: int) -> list[pa.Array]:
        stored = previous.column(self.name).combine_chunks()
        stored = pa.concat_arrays(stored.chunks) if isinstance(stored, pa.ChunkedArray) else stored
        known = stored.is_valid().to_numpy(zero_copy_only=False)
        if _is_counted(stored.type):
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
        storage = (
            {4: pa.int32(), 8: pa.int64()}[stored.type.bit_width // 8] if pa.types.is_temporal(stored.type) else None
        )
        bounds = np.iinfo(np.int64)
        best = np.full(len(stored), bounds.min if self.largest else bounds.max, dtype=np.int64)
        best[known] = _numbers(stored.drop_null(), storage)
        (np.maximum if self.largest else np.minimum).at(best, codes, _numbers(values, storage))
        known = known.copy()
        known[codes] = True
        if storage is None:
            return pa.array(np.where(known, best, 0), mask=~known).cast(stored.type)
        return pa.array(np.where(known, best, 0), mask=~known).cast(storage).view(stored.type)


def _is_counted(data_type: pa.DataType) -> bool:
    """Return whether values are whole numbers inside: their order is that of int64."""
    signed = pa.types.is_integer(data_type) and data_type != pa.uint64()
    return bool(signed or pa.types.is_date(data_type) or pa.types.is_timestamp(data_type))


def _numbers(values: pa.Array, storage: pa.DataType | None) -> Ints:
    """Non-null values as int64; `storage` is the integer type inside a time."""
    return (values if storage is None else values.view(storage)).cast(pa.int64()).to_numpy()


def _ranks(values: pa.Array) -> Ints:
    """Position of each value in the total order: NaN is the largest, the earlier of equal values comes first."""
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


def _stored(previous: pa.Table, name: str) -> Ints:
    return pc.fill_null(previous.column(name), 0).to_numpy().astype(np.int64)


def _fit_in_64_bits(values: pa.Array) -> bool:
    """Return whether no sum of some of these integers leaves int64."""
    bounds = pc.min_max(values).as_py()
    largest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
    return int(largest) * len(values) < 2**63


def _wide(values: pa.Array) -> Sums:
    """Return each value as a sum of its own."""
    low, high = _halves(values)
    return Sums(low, high.view(np.uint64), high >> _63)


def _halves(values: pa.Array) -> tuple[Words, Ints]:
    """Low and high 64 bits of each value, two's complement."""
    if pa.types.is_decimal(values.type):
        wide = pc.cast(values, pa.decimal128(38, values.type.scale))
        words = np.frombuffer(wide.buffers()[1], dtype="<u8")[2 * wide.offset : 2 * (wide.offset + len(wide))]
        return words[0::2], words[1::2].view(np.int64)
    plain = pc.cast(values, pa.int64()).to_numpy()
    return plain.view(np.uint64), plain >> np.int64(63)


def exact_sums_as_int64(sums: Sums) -> tuple[Ints, Bools]:
    """Return the sums as int64 and which of them do not fit."""
    low = sums.low.view(np.int64)
    sign = low >> _63
    return low, (sums.high.view(np.int64) != sign) | (sums.top != sign)


def exact_sums_as_float64(sums: Sums) -> npt.NDArray[np.float64]:
    """Return the sums, which are `in_128_bits`, rounded to float64."""
    low, large = exact_sums_as_int64(sums)
    wide = sums.high.view(np.int64).astype(np.float64) * 2.0**64 + sums.low.astype(np.float64)
    return np.where(large, wide, low.astype(np.float64))


def exact_sums_as_decimal(sums: Sums, data_type: pa.Decimal128Type) -> tuple[pa.Array, Bools]:
    """Return the sums as decimals of 38 digits and which of them do not fit."""
    limit_low, limit_high = np.uint64(10**38 & (2**64 - 1)), np.uint64(10**38 >> 64)
    negative = sums.top < 0
    size_low = np.where(negative, ~sums.low + np.uint64(1), sums.low)
    size_high = np.where(negative, ~sums.high + (sums.low == 0).astype(np.uint64), sums.high)
    too_large = (size_high > limit_high) | ((size_high == limit_high) & (size_low >= limit_low)) | ~sums.in_128_bits
    words = np.empty(2 * len(sums.low), dtype="<u8")
    words[0::2], words[1::2] = sums.low, sums.high
    return pa.Array.from_buffers(data_type, len(sums.low), [None, pa.py_buffer(words.tobytes())]), too_large
