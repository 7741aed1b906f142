"""Assign keys to key groups by hash, and key groups to subtasks, permanently.

State handles record the number of rows per key group, so the assignment is a stored format, pinned by golden vectors.

A value becomes 64-bit words that do not depend on how Arrow stores it (chunks, slices, dictionaries, offset width,
null bitmaps): integers by value, floats as doubles with one zero and one NaN, timestamps by instant, text and binary by
their bytes. `key_hash.py` hashes the words. The mixing function is the finalizer of splitmix64.

The key group is a *monotone* function of the hash's upper half, so rows sorted by hash are sorted by key group.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milepost.errors import InvalidRequest

MAX_KEY_GROUPS = 32_768

Hashes: TypeAlias = npt.NDArray[np.uint64]
Ints: TypeAlias = npt.NDArray[np.int64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
ROWS_AT_ONCE = 1 << 15
"""Number of rows per block. Their words stay in the processor's cache, which takes half the time of a single block."""
KEPT_BYTES = np.array([2 ** (8 * used) - 1 for used in range(9)], dtype=np.uint64)
"""Mask, by number of bytes, of the first bytes of a word."""
PER_MICROSECOND = {"s": 1_000_000, "ms": 1_000, "us": 1}


def mix(words: Hashes) -> Hashes:
    """Spread every input bit over all output bits; a bijection on 64-bit words."""
    words = words + _STEP
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def check_key_type(name: str, data_type: pa.DataType) -> None:
    """Refuse a key column with values that have no stable hash.

    Raises:
        InvalidRequest: the type is not bool, integer, float, decimal, string, binary, date, timestamp.
    """
    if not may_be_key(data_type):
        raise InvalidRequest(
            f"key column {name!r} has type {data_type}, which cannot be a key. Nothing was changed.",
            hint="A key is a bool, number, text, binary, date or timestamp: cast it in a `sql` operator.",
            column=name,
            type=str(data_type),
        )


def may_be_key(data_type: pa.DataType) -> bool:
    """Return whether values of a type have a stable hash."""
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    return bool(
        pa.types.is_boolean(data_type)
        or pa.types.is_integer(data_type)
        or pa.types.is_floating(data_type)
        or (pa.types.is_decimal(data_type) and data_type.bit_width <= 128)
        or pa.types.is_date(data_type)
        or pa.types.is_timestamp(data_type)
        or is_bytes(data_type)
        or pa.types.is_null(data_type)
    )


def is_bytes(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_string_view(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_binary_view(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    )


def key_column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column that can be a key.

    Text and binary are cast to 64-bit offsets once, because casting each slice is expensive.
    """
    column = table.column(name)
    check_key_type(name, column.type)
    return column.cast(pa.large_binary()) if is_bytes(column.type) else column


def fixed_width(array: pa.Array, storage: pa.DataType) -> npt.NDArray[Any]:
    """Return the values of a fixed-width array, 0 for null."""
    values = array.view(storage)
    return values.fill_null(0).to_numpy(zero_copy_only=False) if values.null_count else values.to_numpy()


def integer_bits(array: pa.Array) -> Hashes:
    if array.type == pa.uint64():
        return fixed_width(array, pa.uint64()).astype(np.uint64)
    return fixed_width(array.cast(pa.int64()), pa.int64()).view(np.uint64)


def float_bits(array: pa.Array) -> Hashes:
    values = fixed_width(array.cast(pa.float64()), pa.float64()).astype(np.float64, copy=True)
    values[values == 0.0] = 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)


def decimal_halves(array: pa.Array) -> tuple[Hashes, Hashes]:
    """Return the lower and upper 64 bits of the unscaled values. Those of nulls are arbitrary."""
    wide = array.cast(pa.decimal128(38, array.type.scale))
    halves = np.frombuffer(wide.buffers()[1], dtype="<u8")[2 * wide.offset : 2 * (wide.offset + len(wide))]
    return halves[0::2], halves[1::2]


def words_of_bytes(array: pa.Array) -> tuple[Hashes, Ints, Ints]:
    """Return texts as 8-byte words, without a copy of each text. A null is an empty text.

    Args:
        array: large_binary, at least one value.
    Returns:
        (the word that starts at each byte, first byte of each row, length of each row).
    """
    offsets = np.frombuffer(array.buffers()[1], dtype="<i8")[array.offset : array.offset + len(array) + 1]
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(np.asarray(array.is_null()), 0, lengths)
    body = array.buffers()[2]
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + 8, dtype=np.uint8)
    if last > first and body is not None:
        padded[: last - first] = np.frombuffer(body, dtype=np.uint8, count=last - first, offset=first)
    every_word = np.ndarray(shape=(last - first + 1,), dtype="<u8", buffer=padded, strides=(1,))
    return every_word, offsets[:-1] - first, lengths


def check_max_parallelism(max_parallelism: int) -> None:
    """Raise InvalidRequest unless max_parallelism is within 1..32_768."""
    if not 1 <= max_parallelism <= MAX_KEY_GROUPS:
        raise InvalidRequest(
            f"max_parallelism is {max_parallelism}, expected 1 to {MAX_KEY_GROUPS}. Nothing was changed."
        )


def key_group(hashes: Hashes, max_parallelism: int) -> Ints:
    """Return the key group of each hash, in [0, max_parallelism). It never decreases as the hash grows.

    The upper 32 bits, as a fraction of 2^32, times max_parallelism:

    >>> key_group(np.array([0, 1 << 63, (1 << 63) - 1], dtype=np.uint64), 128).tolist()
    [0, 64, 63]

    Raises:
        InvalidRequest: max_parallelism is out of bounds.
    """
    check_max_parallelism(max_parallelism)
    upper = hashes >> np.uint64(32)
    return ((upper * np.uint64(max_parallelism)) >> np.uint64(32)).astype(np.int64)


def group_cuts(hashes: Hashes, max_parallelism: int) -> Ints:
    """Return the start of each key group among ascending hashes, followed by the number of hashes.

    Raises as `key_group`.

    The highest bits of four hashes are their groups: 0, 1, 3, 3. Group 2 has no row.

    >>> group_cuts(np.array([1 << 60, 3 << 61, 3 << 62, (3 << 62) + 1], dtype=np.uint64), 4).tolist()
    [0, 1, 2, 2, 4]
    """
    check_max_parallelism(max_parallelism)
    return np.append(np.searchsorted(hashes, _least_hashes(max_parallelism)), len(hashes)).astype(np.int64)


@cache
def _least_hashes(max_parallelism: int) -> Hashes:
    """Return the smallest hash of each key group."""
    upper = [-((-group << 32) // max_parallelism) for group in range(max_parallelism)]
    return np.array(upper, dtype=np.uint64) << np.uint64(32)


def key_group_range(max_parallelism: int, parallelism: int, subtask: int) -> range:
    """Return the key groups one subtask owns.

    Every key group has exactly one owner; range sizes differ by at most 1.

    Args:
        max_parallelism: number of key groups, 1..32_768; fixed for the job's life.
        parallelism: number of subtasks, 1..max_parallelism.
        subtask: 0-based, below parallelism.
    Returns:
        Half-open range inside [0, max_parallelism).
    Raises:
        InvalidRequest: an argument is out of bounds.
    """
    _check_parallelism(max_parallelism, parallelism)
    if not 0 <= subtask < parallelism:
        raise InvalidRequest(f"subtask is {subtask}, expected 0 to {parallelism - 1}. Nothing was changed.")
    start = (subtask * max_parallelism + parallelism - 1) // parallelism
    stop = ((subtask + 1) * max_parallelism + parallelism - 1) // parallelism
    return range(start, stop)


def overlap(one: range, other: range) -> bool:
    """Return whether two ranges of key groups have a group in common."""
    return one.start < other.stop and other.start < one.stop


def subtask_of_key_group(groups: Ints, max_parallelism: int, parallelism: int) -> Ints:
    """Return the owner of each key group: the one subtask whose `key_group_range` contains it.

    Raises:
        InvalidRequest: a parallelism or a key group is out of bounds.
    """
    _check_parallelism(max_parallelism, parallelism)
    groups = np.asarray(groups, dtype=np.int64)
    if groups.size and not (int(groups.min()) >= 0 and int(groups.max()) < max_parallelism):
        raise InvalidRequest(
            f"key groups are {groups.min()} to {groups.max()}, expected 0 to {max_parallelism - 1}. "
            "Nothing was changed."
        )
    return groups * parallelism // max_parallelism


def _check_parallelism(max_parallelism: int, parallelism: int) -> None:
    check_max_parallelism(max_parallelism)
    if not 1 <= parallelism <= max_parallelism:
        raise InvalidRequest(
            f"parallelism is {parallelism}, expected 1 to {max_parallelism} (max_parallelism). Nothing was changed.",
            hint="Lower `spark.parallelism`; `max_parallelism` is fixed for the job's life.",
        )
