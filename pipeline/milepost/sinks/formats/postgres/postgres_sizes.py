"""Compute the sizes of rows and index entries as Postgres stores them.

Postgres refuses a row or an index entry that does not fit into a page of 8 kB. It does so when the row is written,
after the commit point, so the rows of an epoch are measured before it. Compression of values is not taken into account.

```
index entry       at most 2704 bytes: 8 of header, then each key column
table row         at most 8160 bytes: 24 of header and 1 bit per column, then each column that is not null
bigint            8, aligned to 8
date              4, aligned to 4
text of n bytes   1 + n if that is below 128, otherwise 4 + n, aligned to 4
... in a row      if longer than 24, it can move out of the row, and leaves a pointer of 18
```
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

MAX_KEY_BYTES = 2704
MAX_ROW_BYTES = 8160

_ALIGNMENT, _KEY_HEADER, _ROW_HEADER = 8, 8, 24
_LONG_HEADER, _SHORT_HEADER, _MARK_BYTES = 4, 1, 8
POINTER_BYTES, _INLINE_BYTES = 18, 24
_WIDTHS = {
    "boolean": 1, "smallint": 2, "integer": 4, "bigint": 8, "real": 4, "double precision": 8, "date": 4,
    "timestamp without time zone": 8, "timestamp with time zone": 8,
}  # fmt: skip
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_NUMERIC_HEADER, _GROUP_DIGITS, _GROUP_BYTES = 4, 4, 2

Sizes = npt.NDArray[np.int64]


def key_bytes(rows: pa.Table, types: Mapping[str, str], key: Iterable[str]) -> int:
    """Return the size of the longest index entry of the rows, for any order of the key columns.

    A column that does not end at a multiple of 8 may shift the next one by up to 7 bytes.

    Args:
        types: Postgres types of the columns, by name. A key has no nulls.
    Returns: an upper bound in bytes: each column of variable length may be counted as up to 10 bytes longer, numerics
        as their maximum; 0 without rows.
    """
    sizes = np.full(rows.num_rows, _KEY_HEADER, np.int64)
    for name in key:
        width = _WIDTHS.get(types[name])
        if width is None:
            sizes += _LONG_HEADER + _value_bytes(rows.column(name), types[name]) + _ALIGNMENT - 1
        else:
            sizes += width if width % _ALIGNMENT == 0 else width + _ALIGNMENT - 1
    return int(sizes.max(initial=0)) // _ALIGNMENT * _ALIGNMENT


def longest_row_bytes(rows: pa.Table, types: Mapping[str, str]) -> int:
    """Return an upper bound for the size of the longest row after all long text has moved out of it.

    If the largest row that the types allow fits a page, that is the bound, and no row is measured.

    Args:
        types: Postgres types of all columns except the mark, by name, in the table's order.
    Returns: bytes; 0 without rows.
    """
    if not rows.num_rows or table_row_bytes(types, _INLINE_BYTES) <= MAX_ROW_BYTES:
        return table_row_bytes(types, _INLINE_BYTES) if rows.num_rows else 0
    sizes = np.full(rows.num_rows, _row_header(types), np.int64)
    for name, column_type in types.items():
        width, column = _WIDTHS.get(column_type), rows.column(name)
        if width is None:
            stored = _SHORT_HEADER + _value_bytes(column, column_type)
            after = sizes + np.where(stored > _INLINE_BYTES, POINTER_BYTES, stored)
        else:
            after = _aligned(sizes, width) + width
        sizes = np.where(pc.is_valid(column).to_numpy(), after, sizes)
    return int(_aligned(sizes, _ALIGNMENT).max()) + _ALIGNMENT - 1


def table_row_bytes(types: Mapping[str, str], text_bytes: int) -> int:
    """Return the size of a row without nulls and with texts of `text_bytes` each. Args: as `longest_row_bytes`."""
    size = _row_header(types)
    for column_type in types.values():
        width = _WIDTHS.get(column_type)
        size = size + text_bytes if width is None else int(_aligned(size, width)) + width
    return int(_aligned(size, _ALIGNMENT))


def _row_header(types: Mapping[str, str]) -> int:
    """Return the size of the row header and of the mark."""
    return int(_aligned(_ROW_HEADER + (len(types) + 8) // 8, _ALIGNMENT)) + _MARK_BYTES


def _value_bytes(column: pa.ChunkedArray, column_type: str) -> Sizes | int:
    """Return the size of each text (0 for null), or the maximum size of a numeric type."""
    if (number := _NUMERIC.fullmatch(column_type)) is not None:
        precision, scale = int(number[1]), int(number[2])
        return _NUMERIC_HEADER + _GROUP_BYTES * (-(-scale // _GROUP_DIGITS) - (scale - precision) // _GROUP_DIGITS)
    lengths: Sizes = pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
    return lengths


def _aligned(size: Any, to: int) -> Any:
    return -(-size // to) * to
