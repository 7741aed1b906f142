"""Partition rows by value, and sample rows.

Both are deterministic: every attempt and every process gets the same parts and the same sample of the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


def can_partition_by(types: Sequence[pa.DataType]) -> bool:
    """Return whether rows can be partitioned by values of these types. Nested values cannot be hashed."""
    return not any(pa.types.is_nested(type_) or isinstance(type_, pa.BaseExtensionType) for type_ in types)


def partition_rows(rows: pa.Table, columns: Sequence[str], parts: int) -> list[pa.Table]:
    """Partition rows by the values of some columns. Each part keeps the order of its rows.

    Rows with equal values are in the same part. Equality is that of pandas: 0.0 equals -0.0, and NaN equals null.

    Rows with the values [5, 7, 5, 8], in 2 parts, become [5, 5] and [7, 8].
    """
    if parts == 1:
        return [rows]
    # Per column: xor in the value, multiply by an odd constant, fold the high half into the low half. The result is the
    # hash of the row, and its remainder is the part number.
    mixed = np.zeros(rows.num_rows, dtype=np.uint64)
    for name in columns:
        mixed = (mixed ^ _hash_words(rows.column(name).combine_chunks())) * _MULTIPLIER
        mixed ^= mixed >> _HALF
    part_numbers = (mixed % np.uint64(parts)).astype(np.int64)
    order = np.argsort(part_numbers, kind="stable")
    ends = np.cumsum(np.bincount(part_numbers, minlength=parts))
    sorted_rows = rows.take(pa.array(order))
    return [sorted_rows.slice(end - size, size) for end, size in zip(ends, np.diff(ends, prepend=0), strict=True)]


def sample_rows(rows: pa.Table, begin: int, size: int, total: int) -> pa.Table:
    """Return the given rows that belong to an evenly spread sample of `size` of `total` rows.

    Row n is in the sample if n * size // total changes from n to n + 1. For 3 of 8 rows these are rows 2, 5 and 7.

    Args:
        begin: index of the first given row among all rows.
    """
    numbers = np.arange(begin, begin + rows.num_rows, dtype=np.int64)
    return rows.filter(pa.array(numbers * size // total != (numbers + 1) * size // total))


def _hash_words(column: Any) -> Any:
    """Return a 64-bit word for each value. Equal values have equal words."""
    type_ = column.type
    if pa.types.is_floating(type_):
        values = column.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # -0.0 becomes 0.0
        return np.where(np.isnan(values), 0.0, values).view(np.uint64)
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        whole = column.cast(pa.uint8()) if pa.types.is_boolean(type_) else column
        return whole.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
    if pa.types.is_timestamp(type_) or pa.types.is_time64(type_) or pa.types.is_date64(type_):
        return column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
    import pandas as pd

    texts = column.cast(pa.binary() if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) else pa.string())
    encoded = texts.dictionary_encode()
    words = pd.util.hash_array(np.array(encoded.dictionary.to_pylist(), dtype=object), categorize=False)
    words = np.append(words, np.uint64(0))  # the word of null
    return words[encoded.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)]
