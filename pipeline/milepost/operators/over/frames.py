"""Evaluate functions over sorted rows of partitions.

Rows are sorted by partition, then by the order. Each row has a frame: the rows from `lo` up to, but not including,
`hi`. Aggregates of numbers are differences of prefix sums, which are exact::

    partition  a  a  a  b  b        sum(x) rows between 1 preceding and current row
    x          1  2  4  8  16
    lo         0  0  1  3  3        never before the partition's first row
    hi         1  2  3  4  5
    prefix  0  1  3  7  15 31       prefix[hi] - prefix[lo]
    sum        1  3  6  8  24
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.contract import Bools, Ints
from milepost.operators.over.calls import NEIGHBOURS, OverCall, RowFrame
from milepost.operators.rows.row_order import float_order, order_numbers


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """Bounds of the partition of each row, and of the rows that tie with it. Rows are sorted.

    Attributes:
        first, end: first row of the partition, and the row after its last.
        ties_first, ties_end: first row that ties with the row, and the row after the last one.
        dense: number of groups of ties in the partition before the row.
    """

    first: Ints
    end: Ints
    ties_first: Ints
    ties_end: Ints
    dense: Ints

    @classmethod
    def of(cls, owners: Ints, order: Sequence[pa.ChunkedArray]) -> PartitionBounds:
        """Return the bounds of sorted rows.

        Args:
            owners: number of each row's partition. order: columns of the order. Without any, all rows tie.

        >>> bounds = PartitionBounds.of(np.array([0, 0, 0, 1]), [pa.chunked_array([[5, 7, 7, 7]])])
        >>> bounds.first.tolist(), bounds.ties_first.tolist(), bounds.ties_end.tolist(), bounds.dense.tolist()
        ([0, 0, 0, 3], [0, 1, 1, 3], [1, 3, 3, 4], [0, 1, 1, 0])
        """
        begins = _differs(owners)
        opens = begins | _differs(order_numbers(order)) if order else begins
        first, end = _spans(begins)
        ties_first, ties_end = _spans(opens)
        ties = np.cumsum(opens)
        return cls(first, end, ties_first, ties_end, ties - ties[first])

    def frame(self, frame: RowFrame | None) -> tuple[Ints, Ints]:
        """Return (first row, row after the last) of the frame of each row. An empty frame begins where it ends."""
        if frame is None:
            return self.first, self.ties_end
        rows = np.arange(len(self.first), dtype=np.int64)
        lo = self.first if frame.first is None else np.clip(rows + frame.first, self.first, self.end)
        hi = self.end if frame.last is None else np.clip(rows + frame.last + 1, self.first, self.end)
        return lo, np.maximum(lo, hi)


def evaluate(call: OverCall, column: pa.ChunkedArray | None, bounds: PartitionBounds, type_: pa.DataType) -> pa.Array:
    """Return the value of each row.

    Raises:
        TooLarge: a sum does not fit its type.
    """
    rows = np.arange(len(bounds.first), dtype=np.int64)
    if call.function in _RANKS:
        return pa.array(_RANKS[call.function](rows, bounds)).cast(type_)
    if call.function in NEIGHBOURS:
        at = rows + (call.distance if call.function == "lead" else -call.distance)
        return _values_at(_array(column), at, (at >= bounds.first) & (at < bounds.end))
    lo, hi = bounds.frame(call.frame)
    if column is None:
        return pa.array(hi - lo)
    values = _array(column)
    if call.function in ("first_value", "last_value"):
        return _values_at(values, lo if call.function == "first_value" else hi - 1, hi > lo)
    valid = np.concatenate([[0], np.cumsum(np.asarray(values.is_valid()))])
    counts = valid[hi] - valid[lo]
    if call.function == "count":
        return pa.array(counts)
    if call.function in ("min", "max"):
        return _extreme(values, lo, hi, counts, is_max=call.function == "max")
    return _numbers(values, lo, hi, counts, type_, is_mean=call.function == "avg")


class TooLarge(Exception):
    """A sum does not fit its type.

    Attributes:
        row: position of the row.
    """

    def __init__(self, row: int) -> None:
        self.row = row


_RANKS: dict[str, Callable[[Ints, PartitionBounds], Ints]] = {
    "row_number": lambda rows, bounds: rows - bounds.first + 1,
    "rank": lambda rows, bounds: bounds.ties_first - bounds.first + 1,
    "dense_rank": lambda rows, bounds: bounds.dense + 1,
}


def _differs(values: Ints) -> Bools:
    differs = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=differs[1:])
    return differs


def _spans(begins: Bools) -> tuple[Ints, Ints]:
    """Return, of each row, the first row of its span and the row after its last.

    >>> [ends.tolist() for ends in _spans(np.array([True, False, True]))]
    [[0, 0, 2], [2, 2, 3]]
    """
    starts = np.flatnonzero(begins)
    span = np.cumsum(begins) - 1
    return starts[span], np.append(starts[1:], len(begins))[span]


def _array(column: pa.ChunkedArray | None) -> pa.Array:
    assert column is not None
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _values_at(values: pa.Array, at: Ints, exists: Bools) -> pa.Array:
    return values.take(pa.array(np.where(exists, at, 0), mask=~exists))


def _extreme(values: pa.Array, lo: Ints, hi: Ints, counts: Ints, *, is_max: bool) -> pa.Array:
    """Return the least or greatest value of each frame that has one."""
    # A frame is covered by two ranges whose length is a power of two, which may overlap:
    #   codes        3  1  2  5  4
    #   least of 2   1  1  2  4          from each row on
    #   rows 1 to 3  min(least of 2 from 1, least of 2 from 2) = min(1, 2)
    codes = _codes(values)
    nulls = ~np.asarray(values.is_valid())
    codes = -codes if is_max else codes
    codes[nulls] = len(codes) + 1
    best = np.full(len(codes), len(codes) + 1, dtype=np.int64)
    lengths = hi - lo
    level, width = codes, 1
    while len(level):
        fits = (lengths >= width) & (lengths < 2 * width)
        best[fits] = np.minimum(level[lo[fits]], level[hi[fits] - width])
        if (lengths < 2 * width).all():
            break
        level, width = np.minimum(level[:-width], level[width:]), 2 * width
    exists = counts > 0
    position = np.zeros(len(codes) + 1, dtype=np.int64)
    valid = np.flatnonzero(~nulls)
    position[np.abs(codes[valid])] = valid
    return _values_at(values, position[np.abs(np.where(exists, best, 0))], exists)


def _codes(values: pa.Array) -> Ints:
    """Return numbers from 0 that sort as the values do. Equal numbers are of equal values: -0.0 is before 0.0."""
    if pa.types.is_floating(values.type):
        values = float_order(values)
    numbers = order_numbers([pa.chunked_array([values])])
    return np.unique(numbers, return_inverse=True)[1].astype(np.int64)


def _numbers(values: pa.Array, lo: Ints, hi: Ints, counts: Ints, type_: pa.DataType, *, is_mean: bool) -> pa.Array:
    """Return the sum or the mean of each frame that has a value."""
    if pa.types.is_floating(values.type):
        return _float_numbers(values, lo, hi, counts, is_mean=is_mean)
    sums = _differences(_integers(values), lo, hi)
    if not pa.types.is_decimal(type_):
        if is_mean:
            means = [total / count if count else None for total, count in zip(sums, counts.tolist(), strict=True)]
            return pa.array(means, type_)
        _check(sums, range(-(2**63), 2**63))
        return pa.array([total if count else None for total, count in zip(sums, counts.tolist(), strict=True)], type_)
    if is_mean:
        more = 10 ** (type_.scale - values.type.scale)
        sums = [_half_up(total * more, count or 1) for total, count in zip(sums, counts.tolist(), strict=True)]
    _check(sums, range(1 - 10**type_.precision, 10**type_.precision))
    words = b"".join(total.to_bytes(16, "little", signed=True) for total in sums)
    decimals = pa.Array.from_buffers(type_, len(sums), [None, pa.py_buffer(words)])
    return pc.if_else(pa.array(counts > 0), decimals, pa.scalar(None, type_))


def _half_up(total: int, count: int) -> int:
    """Return a quotient, rounded to the nearest integer, and away from zero in the middle.

    >>> _half_up(5, 2), _half_up(-5, 2), _half_up(7, 3)
    (3, -3, 2)
    """
    size = (2 * abs(total) + count) // (2 * count)
    return size if total >= 0 else -size


def _check(sums: Sequence[int], limits: range) -> None:
    for row, total in enumerate(sums):
        if total not in limits:
            raise TooLarge(row)


def _integers(values: pa.Array) -> list[int]:
    """Return integers, or the unscaled numbers of decimals, with 0 for null."""
    if not pa.types.is_decimal(values.type):
        return pc.fill_null(values, 0).to_pylist()
    wide_type = pa.decimal128(38, values.type.scale)
    wide = pc.fill_null(values.cast(wide_type), pa.scalar(0, wide_type))
    words = np.frombuffer(wide.buffers()[1], dtype="<i8")[2 * wide.offset : 2 * (wide.offset + len(wide))]
    low, high = words[0::2].view(np.uint64).tolist(), words[1::2].tolist()
    return [(upper << 64) + lower for lower, upper in zip(low, high, strict=True)]


def _differences(values: Sequence[int], lo: Ints, hi: Ints) -> list[int]:
    """Return the sum of each frame."""
    if max(map(abs, values), default=0) * len(values) < 2**63:
        prefix = np.concatenate([[0], np.cumsum(np.array(values, dtype=np.int64))])
        return (prefix[hi] - prefix[lo]).tolist()
    sums = [0, *accumulate(values)]
    return [sums[after] - sums[before] for before, after in zip(lo.tolist(), hi.tolist(), strict=True)]


def _float_numbers(values: pa.Array, lo: Ints, hi: Ints, counts: Ints, *, is_mean: bool) -> pa.Array:
    """Return exact sums or means of floats, rounded once. NaN and infinities are counted instead of added."""
    # Each float is an integer times a common power of two: 0.75, 2.0  ->  3 * 2**-2, 8 * 2**-2
    floats: npt.NDArray[np.float64] = np.asarray(pc.fill_null(values.cast(pa.float64()), 0.0))
    is_finite = np.isfinite(floats)
    fractions, exponents = np.frexp(np.where(is_finite, floats, 0.0))
    whole = (fractions * 2.0**53).astype(np.int64)
    least = int(exponents[whole != 0].min(initial=1_024)) - 53
    shifts = np.where(whole != 0, exponents - 53 - least, 0)
    sums = _differences(
        [number << shift for number, shift in zip(whole.tolist(), shifts.tolist(), strict=True)], lo, hi
    )
    divisors = counts.tolist() if is_mean else [1] * len(sums)
    results = [_rounded(total, least, count) if count else 0.0 for total, count in zip(sums, divisors, strict=True)]
    finite = np.array(results, dtype=np.float64)
    nan, above, below = (_has_any(flags, lo, hi) for flags in (np.isnan(floats), floats == np.inf, floats == -np.inf))
    numbers = np.where(nan | (above & below), np.nan, np.where(above, np.inf, np.where(below, -np.inf, finite)))
    return pa.array(numbers, mask=counts == 0)


def _has_any(flags: Bools, lo: Ints, hi: Ints) -> Bools:
    """Return whether a row of each frame has the flag."""
    prefix = np.concatenate([[0], np.cumsum(flags)])
    return prefix[hi] > prefix[lo]


def _rounded(total: int, exponent: int, count: int) -> float:
    """Return total * 2**exponent / count as the nearest float, infinite if it is too large."""
    try:
        return (total << exponent) / count if exponent >= 0 else total / (count << -exponent)
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")
