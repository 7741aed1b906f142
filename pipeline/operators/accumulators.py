"""Accumulators: how one aggregate's state takes up an epoch's rows, vectorised over rows and keys.

Results do not depend on how rows were cut into buffers and epochs: integer and decimal sums are exact (128 bits in two
int64 columns), float sums add row by row in plan order from the stored sum, minima and maxima follow a total order in
which NaN is the largest (as in Spark SQL). Aggregates over one column share accumulators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.operators.contract import SCALE, Bools, Ints

Words: TypeAlias = npt.NDArray[np.uint64]
Floats: TypeAlias = npt.NDArray[np.float64]

_LOW_32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_HIGH_LIMIT = 7e18
"""Between the high half of 10^38, 5.4e18, and the end of int64, 9.2e18."""

OVERFLOWED = np.int64(2**63 - 1)
"""High half of a sum of decimals that left 128 bits; no sum that fits has it."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """An epoch's rows with the number of each row's key.

    Attributes:
        rows: input rows. codes: key number per row, below count.
    """

    rows: pa.Table
    codes: Ints
    count: int

    def valid(self, column: str) -> tuple[pa.Array, Ints]:
        """The non-null values of a column, and their keys' numbers, in row order."""
        values = self.rows.column(column)
        if values.null_count:
            keep = values.is_valid()
            return _one_chunk(values.filter(keep)), self.codes[keep.to_numpy().astype(np.bool_)]
        return _one_chunk(values), self.codes


def _one_chunk(values: pa.ChunkedArray) -> pa.Array:
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


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
        """Return the new state columns; the rows of `partials` have this accumulator's columns. Only if it `merges`."""


class Count:
    """Counts rows, or the non-null values of a column. State: one int64."""

    def __init__(self, column: str | None) -> None:
        self.column = column
        self.name = f"count({column or '*'})"
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


class ExactSum:
    """Sums integers or decimals exactly. State: a 128-bit two's complement in two int64 columns, low half and high.

    Args:
        scale: decimal places of the values; 0 for integers.
    """

    def __init__(self, column: str, scale: int) -> None:
        self.column = column
        self.low, self.high = f"sum({column}).low", f"sum({column}).high"
        low = pa.field(self.low, pa.int64(), metadata={SCALE: str(scale)})
        self.fields: tuple[pa.Field, ...] = (low, pa.field(self.high, pa.int64()))
        self.merges = True

    def update(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        values, codes = grouped.valid(self.column)
        if pa.types.is_decimal(values.type):
            low, high = _halves(values)
            return self._plus(previous, _added(low, high, codes, grouped.count), _about(high, codes, grouped.count))
        if _fit_in_64_bits(values):
            return self._plus(previous, _whole(pc.cast(values, pa.int64()).to_numpy(), codes, grouped.count))
        return self._plus(previous, _added(*_halves(values), codes, grouped.count))

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        low, high = _stored(partials.rows, self.low), _stored(partials.rows, self.high)
        codes, count = partials.codes, partials.count
        about = _about(high, codes, count)
        about[codes[high == OVERFLOWED]] = np.inf
        return self._plus(previous, _added(low.view(np.uint64), high, codes, count), about)

    def _plus(self, previous: pa.Table, added: tuple[Words, Ints], about: Floats | None = None) -> list[pa.Array]:
        """Add halves of 128 bits to each key.

        Args:
            about: roughly what they add to the high half, where it may overflow.
        """
        added_low, added_high = added
        stored_low = _stored(previous, self.low).view(np.uint64)
        new_low = stored_low + added_low
        carry = (new_low < stored_low).astype(np.int64)
        stored_high = _stored(previous, self.high)
        new_high = stored_high + added_high + carry
        if about is not None:
            beyond = np.abs(stored_high.astype(np.float64) + about) > _HIGH_LIMIT
            new_high[beyond | (stored_high == OVERFLOWED)] = OVERFLOWED
        return [pa.array(new_low.view(np.int64)), pa.array(new_high)]


def _whole(values: Ints, codes: Ints, count: int) -> tuple[Words, Ints]:
    """The sum for each key of integers whose sums fit in int64, as halves of 128 bits."""
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, codes, values)
    return total.view(np.uint64), total >> np.int64(63)


def _added(low: Words, high: Ints, codes: Ints, count: int) -> tuple[Words, Ints]:
    """The sum for each key of numbers of 128 bits, in halves."""
    # Sums of 32-bit limbs cannot overflow int64 below 2^31 rows; carries are settled once per key.
    limbs = np.zeros((2, count), dtype=np.uint64)
    np.add.at(limbs[0], codes, low & _LOW_32)
    np.add.at(limbs[1], codes, low >> _32)
    top = np.zeros(count, dtype=np.int64)
    np.add.at(top, codes, high)
    middle = limbs[1] + (limbs[0] >> _32)
    return (middle << _32) | (limbs[0] & _LOW_32), top + (middle >> _32).astype(np.int64)


def _about(high: Ints, codes: Ints, count: int) -> Floats:
    """The sum of high halves for each key, rounded."""
    total = np.zeros(count, dtype=np.float64)
    np.add.at(total, codes, high.astype(np.float64))
    return total


class FloatSum:
    """Sums floats in row order, starting from the stored sum. State: one float64."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.name = f"sum({column})"
        self.fields: tuple[pa.Field, ...] = (pa.field(self.name, pa.float64()),)
        self.merges = False  # a sum of sums is rounded otherwise

    def update(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        values, codes = grouped.valid(self.column)
        total = pc.fill_null(previous.column(self.name), 0.0).to_numpy().copy()
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(total, codes, pc.cast(values, pa.float64()).to_numpy())
        return [pa.array(total)]

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        raise AssertionError("unreachable: sums of floats are not merged")


class Extreme:
    """Keeps the smallest or largest value of a column. State: one value of the column's type."""

    def __init__(self, column: str, data_type: pa.DataType, largest: bool) -> None:
        self.column = column
        self.largest = largest
        self.name = f"{'max' if largest else 'min'}({column})"
        self.fields: tuple[pa.Field, ...] = (pa.field(self.name, data_type),)
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
    """Whether values are whole numbers inside: their order is that of int64."""
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
    """Whether no sum of some of these integers leaves int64."""
    bounds = pc.min_max(values).as_py()
    largest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
    return int(largest) * len(values) < 2**63


def _halves(values: pa.Array) -> tuple[Words, Ints]:
    """Low and high 64 bits of each value, two's complement."""
    if pa.types.is_decimal(values.type):
        wide = pc.cast(values, pa.decimal128(38, values.type.scale))
        words = np.frombuffer(wide.buffers()[1], dtype="<u8")[2 * wide.offset : 2 * (wide.offset + len(wide))]
        return words[0::2], words[1::2].view(np.int64)
    plain = pc.cast(values, pa.int64()).to_numpy()
    return plain.view(np.uint64), plain >> np.int64(63)


def exact_sums_as_int64(low: Ints, high: Ints) -> tuple[Ints, Bools]:
    """Return the sums as int64 and which of them do not fit."""
    return low, high != (low >> np.int64(63))


def exact_sums_as_float64(low: Ints, high: Ints) -> npt.NDArray[np.float64]:
    """Return the sums rounded to float64."""
    fits = high == (low >> np.int64(63))
    wide = high.astype(np.float64) * 2.0**64 + low.view(np.uint64).astype(np.float64)
    return np.where(fits, low.astype(np.float64), wide)


def exact_sums_as_decimal(low: Ints, high: Ints, data_type: pa.Decimal128Type) -> tuple[pa.Array, Bools]:
    """Return the sums as decimals of 38 digits and which of them do not fit."""
    limit_low, limit_high = np.uint64(10**38 & (2**64 - 1)), np.uint64(10**38 >> 64)
    negative = high < 0
    low_bits, high_bits = low.view(np.uint64), high.view(np.uint64)
    size_low = np.where(negative, ~low_bits + np.uint64(1), low_bits)
    size_high = np.where(negative, ~high_bits + (low_bits == 0).astype(np.uint64), high_bits)
    too_large = (size_high > limit_high) | ((size_high == limit_high) & (size_low >= limit_low))
    words = np.empty(2 * len(low), dtype="<u8")
    words[0::2], words[1::2] = low_bits, high_bits
    return pa.Array.from_buffers(data_type, len(low), [None, pa.py_buffer(words.tobytes())]), too_large
