"""Order-independent sums of floats: exact sums that are rounded once, when they are emitted.

A float is an integer number of units of 2**-1127, and so is a sum of floats: an integer of up to 2,240 bits, in limbs
of 32 bits. State stores the limbs between the lowest and the highest significant one, which are 4 or 5 for most sums.
Each number has exactly one form (I12)::

    place of the lowest limb, the limbs from there, one limb of sign (0 or all ones), each of 4 bytes, little-endian

    1.0 = 2**1127 units, and 1127 = 35 * 32 + 7, so limb 35 is 2**7:
     1.0    23000000 80000000 00000000
    -1.0    23000000 80ffffff ffffffff
     0.0    00000000 00000000              no limbs

Infinities and NaN are added separately as floats, where the order does not matter. Over updates they are counted,
because a NaN that was added cannot be subtracted::

    change              exact    nan    +inf    -inf    sum
    +1.5  +NaN  +inf    1.5      1      1       0       NaN
    -NaN                1.5      0      1       0       inf
    -inf of above       1.5      0      0       0       1.5
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.aggregation.accumulators import Argument, Grouped, typed_by
from milepost.operators.aggregation.exact_sums import stored_numbers
from milepost.operators.contract import Bools, Ints
from milepost.operators.rows.columns import places_in_groups
from milepost.protocol.records import SCALE

Floats = npt.NDArray[np.float64]

_UNIT = 1_127
"""A unit is 2**-_UNIT: the last of the 53 bits of a fraction that starts at the smallest float, 2**-1074."""
_LIMBS, _LIMBS_OF_SQUARES = 70, 140
_MASK, _32 = np.int64(0xFFFFFFFF), np.int64(32)
_HALF = np.int64((1 << 27) - 1)
_NOT_FINITE = ("nan", "inf", "neg_inf")
"""State columns of the numbers of values that are not finite."""
ZERO = bytes(8)
"""The stored form of 0."""
_KEYS_AT_ONCE = 16_384
"""Number of keys whose limbs are in memory together, at 560 or 1,120 bytes per key."""


class OrderFreeSum:
    """Sums floats, or their squares, exactly.

    State: an integer in binary form. Sums also have a float64 for infinities and NaN, which have no integer.
    """

    def __init__(self, argument: Argument, *, squares: bool = False, scale: int | None = None) -> None:
        """Args:
        scale: decimal places of decimals that are summed as floats.
        """
        self.column = str(argument.column)
        self.name = f"{'squares' if squares else 'sum'}({argument.label})"
        self._squares, self._limbs = squares, _LIMBS_OF_SQUARES if squares else _LIMBS
        decimals = {} if scale is None else {SCALE: str(scale)}
        rest = typed_by(pa.field(f"{self.name}.rest", pa.float64(), metadata=decimals), self.column)
        exact = pa.field(f"{self.name}.exact", pa.binary())
        self.fields: tuple[pa.Field, ...] = (exact,) if squares else (exact, rest)
        self.merges = True

    def update(self, previous: pa.Table, grouped: Grouped) -> list[pa.Array]:
        values, codes = grouped.valid(self.column)
        floats = pc.cast(values, pa.float64()).to_numpy()
        finite = np.isfinite(floats)
        rest = self._rest_with(previous, floats[~finite], codes[~finite])
        floats, codes = floats[finite], codes[finite]
        parts = []
        for keys, limbs, chosen in self._parts(previous, codes, grouped.count):
            _add_floats(limbs, floats[chosen], codes[chosen] - keys.start, squares=self._squares)
            parts.append(_stored_form(limbs))
        return [_concat(parts), *rest]

    def merge(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        rest = self._merged_rest(previous, partials)
        numbers = _one_chunk(partials.rows.column(f"{self.name}.exact"))
        parts = []
        for keys, limbs, chosen in self._parts(previous, partials.codes, partials.count):
            order = chosen[np.argsort(partials.codes[chosen], kind="stable")]
            distinct, begins = np.unique(partials.codes[order], return_index=True)
            if len(order):
                more = _limbs_of(numbers.take(pa.array(order)), self._limbs)
                limbs[:, distinct - keys.start] += np.add.reduceat(more, begins, axis=1)
            parts.append(_stored_form(limbs))
        return [_concat(parts), *rest]

    def _parts(self, previous: pa.Table, codes: Ints, count: int) -> Iterator[tuple[range, Ints, Ints]]:
        """Yield keys in batches: their numbers, their limbs, and the positions of their rows."""
        numbers = _one_chunk(previous.column(f"{self.name}.exact"))
        starts = np.arange(0, max(count, 1), _KEYS_AT_ONCE)
        order = np.argsort(codes, kind="stable") if len(starts) > 1 else np.arange(len(codes))
        bounds = [0, *np.searchsorted(codes[order], starts[1:]).tolist(), len(codes)]
        for start, (first, behind) in zip(starts.tolist(), pairwise(bounds), strict=True):
            keys = range(start, min(start + _KEYS_AT_ONCE, count))
            yield keys, _limbs_of(numbers.slice(start, len(keys)), self._limbs), order[first:behind]

    def _merged_rest(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        """Return the new state columns of values that are not finite, with those of `partials`."""
        return [] if self._squares else self._rest_with(previous, _rest(partials.rows, self.name), partials.codes)

    def _rest_with(self, previous: pa.Table, added: Floats, codes: Ints) -> list[pa.Array]:
        """Return the new state columns of values that are not finite, with some more of them."""
        if self._squares:
            return []
        rest = _rest(previous, self.name).copy()
        with np.errstate(invalid="ignore"):
            np.add.at(rest, codes, added)
        return [pa.array(np.where(np.isnan(rest), np.nan, rest), pa.float64())]


class RetractableFloatSum(OrderFreeSum):
    """Sums floats, or their squares, exactly, so that values can be retracted.

    State: an integer in binary form. Sums also have the numbers of NaN, +inf and -inf.
    """

    def __init__(self, argument: Argument, *, squares: bool = False, scale: int | None = None) -> None:
        """Args:
        scale: as in `OrderFreeSum`.
        """
        super().__init__(argument, squares=squares, scale=scale)
        if not squares:
            exact, rest = self.fields
            first, *others = (pa.field(f"{self.name}.{kind}", pa.int64()) for kind in _NOT_FINITE)
            self.fields = (exact, first.with_metadata(rest.metadata), *others)

    def negated(self, partials: pa.Table) -> list[pa.Array]:
        exact, *counts = (field.name for field in self.fields)
        numbers = _one_chunk(partials.column(exact))
        parts = [
            _stored_form(-_limbs_of(numbers.slice(start, _KEYS_AT_ONCE), self._limbs))
            for start in range(0, max(len(numbers), 1), _KEYS_AT_ONCE)
        ]
        return [_concat(parts), *(pa.array(-stored_numbers(partials, name)) for name in counts)]

    def _merged_rest(self, previous: pa.Table, partials: Grouped) -> list[pa.Array]:
        counts = [stored_numbers(previous, field.name).copy() for field in self.fields[1:]]
        for field, count in zip(self.fields[1:], counts, strict=True):
            np.add.at(count, partials.codes, stored_numbers(partials.rows, field.name))
        return [pa.array(count) for count in counts]

    def _rest_with(self, previous: pa.Table, added: Floats, codes: Ints) -> list[pa.Array]:
        kinds = (np.isnan(added), np.isposinf(added), np.isneginf(added))
        return [
            pa.array(stored_numbers(previous, field.name) + np.bincount(codes[kind], minlength=previous.num_rows))
            for field, kind in zip(self.fields[1:], kinds, strict=False)
        ]


def order_free_sums(rows: pa.Table, argument: Argument) -> Floats:
    """Return the sums of state rows, each rounded once. A sum beyond the range of floats is an infinity."""
    name = f"sum({argument.label})"
    rest = _rest(rows, name)
    return np.where(rest == 0.0, [_quotient(number, 1 << _UNIT) for number in _whole_numbers(rows, name)], rest)


def order_free_variances(rows: pa.Table, argument: Argument) -> tuple[Floats, Bools]:
    """Return (sample variance of each state row, whether it is null because the row has fewer than two values).

    Variances are rounded once. They are NaN if a value is not finite.
    """
    counts = rows.column(f"count({argument.label})").to_numpy()
    names = [f"{what}({argument.label})" for what in ("sum", "squares")]
    sums, squares = (_whole_numbers(rows, name) for name in names)
    unit = 1 << (2 * _UNIT)
    exact = [
        0.0 if count < 2 else _quotient(count * square - total * total, count * (count - 1) * unit)
        for count, total, square in zip(counts.tolist(), sums, squares, strict=True)
    ]
    return np.where(_rest(rows, names[0]) == 0.0, exact, np.nan), counts < 2


def _rest(rows: pa.Table, name: str) -> Floats:
    """Return the sum of the values that are not finite, and 0.0 if there are none."""
    if f"{name}.rest" in rows.column_names:
        return pc.fill_null(rows.column(f"{name}.rest"), 0.0).to_numpy()
    nan, above, below = (stored_numbers(rows, f"{name}.{kind}") > 0 for kind in _NOT_FINITE)
    return np.select([nan | (above & below), above, below], [np.nan, np.inf, -np.inf], 0.0)


def _quotient(number: int, by: int) -> float:
    try:
        return number / by
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _whole_numbers(rows: pa.Table, name: str) -> Iterator[int]:
    for form in rows.column(f"{name}.exact").to_pylist():
        places = int.from_bytes(form[:4], "little") if form else 0
        yield int.from_bytes(form[4:], "little", signed=True) << (32 * places) if form else 0


def _add_floats(limbs: Ints, floats: Floats, codes: Ints, *, squares: bool) -> None:
    """Add values, or their squares, to the limbs of their keys."""
    fractions, exponents = np.frexp(floats)
    whole = np.abs(np.ldexp(fractions, 53)).astype(np.int64)
    powers = exponents.astype(np.int64) + (_UNIT - 53)
    if not squares:
        _add(limbs, np.where(floats < 0, np.int64(-1), np.int64(1)), whole, powers, codes)
        return
    above, below = whole >> np.int64(27), whole & _HALF
    for part, more in ((below * below, 0), (above * below, 28), (above * above, 54)):
        _add(limbs, np.int64(1), part, 2 * powers + more, codes)


def _add(limbs: Ints, signs: Ints | np.int64, whole: Ints, powers: Ints, codes: Ints) -> None:
    """Add integers below 2**54, each times a power of 2, without propagating carries."""
    flat, count = limbs.reshape(-1), limbs.shape[1]
    place, shift = powers >> np.int64(5), powers & np.int64(31)
    low = (whole & _MASK) << shift
    high = ((whole >> _32) << shift) + (low >> _32)
    at = place * count + codes
    for by, part in enumerate((low & _MASK, high & _MASK, high >> _32)):
        np.add.at(flat, at + by * count, signs * part)


def _limbs_of(numbers: pa.Array, size: int) -> Ints:
    """Return the limbs as an array (limb, number), the lowest first. The sign is in the limb after the last."""
    count = len(numbers)
    limbs = np.zeros((size, count), dtype=np.int64)
    offsets = np.frombuffer(numbers.buffers()[1], dtype=np.int32)[numbers.offset : numbers.offset + count + 1]
    lengths = np.where(numbers.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets) // 4, 0).astype(np.int64)
    known = np.flatnonzero(lengths)
    if not known.size:
        return limbs
    words = np.frombuffer(numbers.buffers()[2], dtype="<u4")
    begins, lengths = offsets[known].astype(np.int64) // 4, lengths[known]
    places = words[begins].astype(np.int64)
    of, within = _positions(lengths - 1)
    values = words[begins[of] + 1 + within].astype(np.int64)
    values[within == lengths[of] - 2] = np.where(values[within == lengths[of] - 2] == 0, 0, -1)
    limbs[places[of] + within, known[of]] = values
    return limbs


def _stored_form(limbs: Ints) -> pa.Array:
    """Return the stored form of numbers. Limbs may have any size and sign, because carries are propagated here."""
    size, count = limbs.shape
    for place in range(size - 1):
        limbs[place + 1] += limbs[place] >> _32
        limbs[place] &= _MASK
    signs = np.where(limbs[-1] < 0, _MASK, np.int64(0))
    limbs[-1] &= _MASK
    lowest = np.argmax(limbs != 0, axis=0)
    beyond = size - np.argmax(limbs[::-1] != signs, axis=0)
    beyond = np.where((limbs == signs).all(axis=0), lowest, beyond)
    of, within = _positions(beyond - lowest + 2)
    words = limbs[np.maximum(lowest[of] + within - 1, 0), of]
    words = np.where(within == 0, lowest[of], words).astype("<u4")
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(4 * (beyond - lowest + 2), out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(words)])


def _positions(lengths: Ints) -> tuple[Ints, Ints]:
    """Return for each word the index of its number, and its position in it."""
    return np.repeat(np.arange(len(lengths)), lengths), places_in_groups(lengths)


def _one_chunk(values: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


def _concat(parts: list[pa.Array]) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
