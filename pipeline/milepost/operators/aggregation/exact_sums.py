"""Exact 192-bit sums of any number of integers and decimals, without rounding."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.contract import Bools, Ints

Words: TypeAlias = npt.NDArray[np.uint64]

_LOW_32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_63 = np.int64(63)

_OVERFLOWED = np.int64(2**63 - 1)
"""High part of a stored sum that exceeded 128 bits before sums had a top part. No sum that fits has this value."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Exact sums of 192 bits in two's complement: the lowest 64 bits, the next 64, and the rest with the sign.

    2**64 + 3   low 3             high 1             top 0
    -2          low 2**64 - 2     high 2**64 - 1     top -1
    """

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
        """Return the parts as state columns, the lowest first."""
        return [pa.array(part) for part in (self.low.view(np.int64), self.high.view(np.int64), self.top)]

    def negated(self) -> Sums:
        low, high = ~self.low + np.uint64(1), ~self.high + (self.low == 0).astype(np.uint64)
        return Sums(low, high, ~self.top + ((self.low == 0) & (self.high == 0)).astype(np.int64))

    @property
    def in_128_bits(self) -> Bools:
        """Mask of the sums that fit in 128 bits."""
        within: Bools = self.top == self.high.view(np.int64) >> _63
        return within


def stored_sums(rows: pa.Table, name: str) -> Sums:
    """Read sums from state columns. A sum that was stored without its top part is sign-extended.

    If such a sum had exceeded 128 bits, it stays out of range.
    """
    low, high = stored_numbers(rows, f"{name}.low"), stored_numbers(rows, f"{name}.high")
    top = high >> _63
    if f"{name}.top" in rows.column_names:
        stored = rows.column(f"{name}.top")
        without = stored.is_null().to_numpy()
        beyond = without & (high == _OVERFLOWED)
        top = np.where(without, top, stored_numbers(rows, f"{name}.top"))
        top[beyond] = _OVERFLOWED >> np.int64(1)
    return Sums(low.view(np.uint64), high.view(np.uint64), top)


def sums_of_values(values: pa.Array, codes: Ints, count: int) -> Sums:
    """Return the sum of integer or decimal values for each key."""
    if not pa.types.is_decimal(values.type) and _fit_in_64_bits(values):
        total = np.zeros(count, dtype=np.int64)
        np.add.at(total, codes, pc.cast(values, pa.int64()).to_numpy())
        return _of_int64(total)
    return sums_by_key(_wide(values), codes, count)


def sums_by_key(values: Sums, codes: Ints, count: int) -> Sums:
    """Return the sum of values for each key."""
    # Sums of 32-bit limbs cannot overflow 64 bits below 2^31 rows. Carries are propagated once per key.
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


def _fit_in_64_bits(values: pa.Array) -> bool:
    """Return whether no partial sum of these integers can overflow int64."""
    bounds = pc.min_max(values).as_py()
    largest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
    return int(largest) * len(values) < 2**63


def _wide(values: pa.Array) -> Sums:
    """Convert each value to a 192-bit sum."""
    if not pa.types.is_decimal(values.type):
        return _of_int64(pc.cast(values, pa.int64()).to_numpy())
    wide = pc.cast(values, pa.decimal128(38, values.type.scale))
    words = np.frombuffer(wide.buffers()[1], dtype="<u8")[2 * wide.offset : 2 * (wide.offset + len(wide))]
    low, high = words[0::2], words[1::2]
    return Sums(low, high, high.view(np.int64) >> _63)


def _of_int64(values: Ints) -> Sums:
    sign = values >> _63
    return Sums(values.view(np.uint64), sign.view(np.uint64), sign)


def exact_sums_as_int64(sums: Sums) -> tuple[Ints, Bools]:
    """Return the sums as int64, and a mask of those that do not fit."""
    low = sums.low.view(np.int64)
    sign = low >> _63
    return low, (sums.high.view(np.int64) != sign) | (sums.top != sign)


def exact_sums_as_float64(sums: Sums) -> npt.NDArray[np.float64]:
    """Return the sums rounded to float64. All of them must be `in_128_bits`."""
    low, large = exact_sums_as_int64(sums)
    wide = sums.high.view(np.int64).astype(np.float64) * 2.0**64 + sums.low.astype(np.float64)
    return np.where(large, wide, low.astype(np.float64))


def exact_sums_as_decimal(sums: Sums, data_type: pa.Decimal128Type) -> tuple[pa.Array, Bools]:
    """Return the sums as decimals of 38 digits, and a mask of those that do not fit."""
    limit_low, limit_high = np.uint64(10**38 & (2**64 - 1)), np.uint64(10**38 >> 64)
    negative, negated = sums.top < 0, sums.negated()
    size_low = np.where(negative, negated.low, sums.low)
    size_high = np.where(negative, negated.high, sums.high)
    too_large = (size_high > limit_high) | ((size_high == limit_high) & (size_low >= limit_low)) | ~sums.in_128_bits
    words = np.empty(2 * len(sums.low), dtype="<u8")
    words[0::2], words[1::2] = sums.low, sums.high
    return pa.Array.from_buffers(data_type, len(sums.low), [None, pa.py_buffer(words.tobytes())]), too_large


def stored_numbers(rows: pa.Table, name: str) -> Ints:
    """Return a state column, with 0 for a new key."""
    return pc.fill_null(rows.column(name), 0).to_numpy().astype(np.int64)
