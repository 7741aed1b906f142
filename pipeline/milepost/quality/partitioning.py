"""Rows are cut so that those of equal values are in one part, wherever they come from; and thinned to a sample.

Both are the same for the same rows, in every attempt and in every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_MIX = np.uint64(0x9E3779B97F4A7C15)
_TOP = np.uint64(32)


def can_partition_by(types: Sequence[pa.DataType]) -> bool:
    """Return whether values of these types tell rows apart: the library cannot hash nested ones either."""
    return not any(pa.types.is_nested(one) or isinstance(one, pa.BaseExtensionType) for one in types)


def partition_rows(rows: pa.Table, columns: Sequence[str], parts: int) -> list[pa.Table]:
    """Cut rows into so many parts, in each the rows keep their order; rows that are equal in the columns stay together.

    Numbers are equal as pandas has it: 0.0 and -0.0, and NaN and null.
    """
    if parts == 1:
        return [rows]
    mixed = np.zeros(rows.num_rows, dtype=np.uint64)
    for name in columns:
        mixed = (mixed ^ _words(rows.column(name).combine_chunks())) * _MIX
        mixed ^= mixed >> _TOP
    among = (mixed % np.uint64(parts)).astype(np.int64)
    order = np.argsort(among, kind="stable")
    ends = np.cumsum(np.bincount(among, minlength=parts))
    sorted_rows = rows.take(pa.array(order))
    return [sorted_rows.slice(end - size, size) for end, size in zip(ends, np.diff(ends, prepend=0), strict=True)]


def sample_rows(rows: pa.Table, begin: int, size: int, total: int) -> pa.Table:
    """Return those of some rows that are in a sample: `size` of `total` rows, evenly spread.

    Args:
        begin: number of the first of these rows among all.
    """
    numbers = np.arange(begin, begin + rows.num_rows, dtype=np.int64)
    return rows.filter(pa.array(numbers * size // total != (numbers + 1) * size // total))


def _words(column: Any) -> Any:
    """Return a word of 64 bits for each value; equal values have equal ones."""
    type_ = column.type
    if pa.types.is_floating(type_):
        values = column.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # there is one zero
        return np.where(np.isnan(values), 0.0, values).view(np.uint64)
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        whole = column.cast(pa.uint8()) if pa.types.is_boolean(type_) else column
        return whole.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
    if pa.types.is_timestamp(type_) or pa.types.is_time64(type_) or pa.types.is_date64(type_):
        return column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
    import pandas as pd

    texts = column.cast(pa.binary() if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) else pa.string())
    found = texts.dictionary_encode()
    words = pd.util.hash_array(np.array(found.dictionary.to_pylist(), dtype=object), categorize=False)
    words = np.append(words, np.uint64(0))  # of null
    return words[found.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)]
