"""Accumulators of variances, and the sample variance of each key.

As in Spark, it is null for fewer than two values. For integers and decimals of up to 18 digits the sums of values and
of their squares are exact, so a variance is rounded once, in any order. For floats, and wider decimals as floats, the
mean and the squared distances from it are updated value by value in plan order (Welford). This stays accurate for
values that are large and close to each other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.language import EXACT_DIGITS
from milepost.operators.aggregation.accumulators import Argument, Grouped, typed_by
from milepost.operators.aggregation.exact_sums import Sums, stored_sums, sums_by_key
from milepost.operators.contract import Ints
from milepost.protocol.records import SCALE

Floats = npt.NDArray[np.float64]

_FEW_KEYS = 16
"""Fewer keys than this are processed one by one, because a numpy call costs about as much as that many steps."""

_LOW_32, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


def is_exact(data_type: pa.DataType) -> bool:
    """Return whether squares of this type are summed exactly."""
    return bool(pa.types.is_integer(data_type)) or (
        pa.types.is_decimal(data_type) and data_type.precision <= EXACT_DIGITS
    )


class SquareSum:
    """Sums the squares of integers or decimals exactly. State: 192 bits in three int64 columns, the lowest first."""

    def __init__(self, argument: Argument, scale: int | None) -> None:
        self.column = str(argument.column)
        self.name = f"squares({argument.label})"
        low = pa.field(f"{self.name}.low", pa.int64(), metadata={SCALE: str(scale or 0)})
        others = [pa.field(f"{self.name}.{part}", pa.int64()) for part in ("high", "top")]
        self.fields: tuple[pa.Field, ...] = (typed_by(low, self.column), *others)
        self.merges = True

    def update(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        values, codes = grouped.valid(self.column)
        return self._plus(previous, sums_by_key(_squares(_unscaled(values)), codes, grouped.count))

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        return self._plus(previous, sums_by_key(stored_sums(partials.rows, self.name), partials.codes, partials.count))

    def negated(self, partials: pa.Table) -> list[pa.Array]:
        return stored_sums(partials, self.name).negated().columns()

    def _plus(self, previous: pa.Table, added: Sums) -> list[pa.Array]:
        return stored_sums(previous, self.name).plus(added).columns()


def _unscaled(values: pa.Array) -> Ints:
    if pa.types.is_decimal(values.type):
        wide = pc.cast(values, pa.decimal128(38, values.type.scale))
        return np.frombuffer(wide.buffers()[1], dtype="<i8")[2 * wide.offset : 2 * (wide.offset + len(wide)) : 2]
    return pc.cast(values, pa.int64()).to_numpy()


def _squares(values: Ints) -> Sums:
    """Return the square of each value: (2^32 b + a)^2 = 2^64 b^2 + 2^32 2ab + a^2. Each product fits in 64 bits.

    2^32 + 3 has b = 1 and a = 3. Its square is high 1, low 6 * 2^32 + 9 = 25769803785.
    """
    size = np.where(values < 0, ~values.view(np.uint64) + np.uint64(1), values.view(np.uint64))
    below, above = size & _LOW_32, size >> _32
    twice = np.uint64(2) * below * above
    low = below * below + (twice << _32)
    carry = (low < (twice << _32)).astype(np.uint64)
    return Sums(low, above * above + (twice >> _32) + carry, np.zeros(len(values), dtype=np.int64))


class Moments:
    """Stores the mean of floats and the sum of their squared distances from it. State: two float64.

    A `Count` of the same argument must accompany it, for the number of values. After each of the values 2, 4 and 9:

        count       1   2   3
        mean        2   3   5
        distances   0   2   26     sample variance 26 / 2 = 13
    """

    def __init__(self, argument: Argument, scale: int | None) -> None:
        self.column = str(argument.column)
        self.count = f"count({argument.label})"
        self.mean, self.distances = f"mean({argument.label})", f"distances({argument.label})"
        decimals = {} if scale is None else {SCALE: str(scale)}
        mean = typed_by(pa.field(self.mean, pa.float64(), metadata=decimals), self.column)
        self.fields: tuple[pa.Field, ...] = (mean, pa.field(self.distances, pa.float64()))
        self.merges = False  # merging moments rounds differently

    def update(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        values, codes = grouped.valid(self.column)
        with np.errstate(over="ignore", invalid="ignore"):
            counts, means, distances = self._stored(previous)
            _take_up(pc.cast(values, pa.float64()).to_numpy(), codes, counts, means, distances)
        return _one_nan(means, distances)

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        """Merge moments in order (Chan). The rounding differs from that of `update` with the rows."""
        counts, means, distances = self._stored(previous)
        with np.errstate(over="ignore", invalid="ignore"):
            for key, n, mean, distance in zip(partials.codes, *self._stored(partials.rows), strict=True):
                if n:
                    total, apart = counts[key] + n, mean - means[key]
                    distances[key] += distance + apart * apart * (counts[key] * n / total)
                    means[key] += apart * (n / total)
                    counts[key] = total
        return _one_nan(means, distances)

    def _stored(self, rows: pa.Table) -> tuple[Floats, Floats, Floats]:
        counts, means, distances = (
            pc.fill_null(rows.column(name).cast(pa.float64()), 0.0).to_numpy().copy()
            for name in (self.count, self.mean, self.distances)
        )
        return counts, means, distances


def _take_up(values: Floats, codes: Ints, counts: Floats, means: Floats, distances: Floats) -> None:
    """Apply the values of each key one by one, in order.

    While many keys have values left, a step applies the next value of all of them: the first value of all keys, then
    the second, and so on. The few keys with more values are then processed one after another. Both ways use the same
    arithmetic and give the same bits.
    """
    order = np.argsort(codes, kind="stable")
    lengths = np.bincount(codes, minlength=len(counts))
    begins = np.cumsum(lengths) - lengths
    keys = np.argsort(-lengths, kind="stable")
    more_than = np.searchsorted(-lengths[keys], -np.arange(int(lengths.max(initial=0))), side="left")
    place = 0
    for active in more_than:
        if active < _FEW_KEYS:
            break
        some = keys[:active]
        value = values[order[begins[some] + place]]
        counts[some] += 1.0
        apart = value - means[some]
        means[some] += apart / counts[some]
        distances[some] += apart * (value - means[some])
        place += 1
    for key in keys[: more_than[place]] if place < len(more_than) else ():
        count, mean, distance = float(counts[key]), float(means[key]), float(distances[key])
        for value in values[order[begins[key] + place : begins[key] + lengths[key]]].tolist():
            count += 1.0
            apart = value - mean
            mean += apart / count
            distance += apart * (value - mean)
        counts[key], means[key], distances[key] = count, mean, distance


def _one_nan(*columns: Floats) -> list[pa.Array]:
    return [pa.array(np.where(np.isnan(column), np.nan, column), pa.float64()) for column in columns]


def variances(rows: pa.Table, argument: Argument, data_type: pa.DataType) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return (sample variance of each state row, whether it is null because the row has fewer than two values)."""
    counts = rows.column(f"count({argument.label})").to_numpy()
    none = counts < 2
    if not is_exact(data_type):
        distances = pc.fill_null(rows.column(f"distances({argument.label})"), 0.0).to_numpy()
        return distances / np.maximum(counts - 1, 1), none
    unit = 10 ** (2 * data_type.scale) if pa.types.is_decimal(data_type) else 1
    sums = _whole_numbers(stored_sums(rows, f"sum({argument.label})"))
    squares = _whole_numbers(stored_sums(rows, f"squares({argument.label})"))
    exact = [
        0.0 if count < 2 else (count * square - total * total) / (count * (count - 1) * unit)
        for count, total, square in zip(counts.tolist(), sums, squares, strict=True)
    ]
    return np.array(exact, dtype=np.float64), none


def _whole_numbers(sums: Sums) -> list[int]:
    parts = zip(sums.low.tolist(), sums.high.tolist(), sums.top.tolist(), strict=True)
    return [(top << 128) + (high << 64) + low for low, high, top in parts]
