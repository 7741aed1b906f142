"""Rows as lines of Postgres' COPY text format, for writing and for comparing rows.

A line is a row, with its columns separated by tabs::

    k=1, v="a\tb", w=null      ->      1<TAB>a\\tb<TAB>\\N

Two rows are equal if their lines are. So NaN equals NaN, and null equals null.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NULL = "\\N"
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
"""Backslashes first, because the other escapes add backslashes."""

_CHUNK_BYTES = 1 << 20


def lines_of(rows: pa.Table) -> pa.Array:
    """Return the line of each row, with its newline, in the order of `rows`."""
    columns = [_texts(column) for column in rows.itercolumns()]
    ended = pa.scalar("\n", pa.large_string()), pa.scalar("", pa.large_string())
    lines = pc.binary_join_element_wise(*columns, pa.scalar("\t", pa.large_string()))
    lines = pc.binary_join_element_wise(lines, *ended)
    return lines.combine_chunks() if isinstance(lines, pa.ChunkedArray) else lines


def copy_bytes(lines: pa.Array) -> Iterator[memoryview]:
    """Yield the bytes of the lines for COPY, in chunks, without copying the array's buffer."""
    if not len(lines):
        return
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[lines.offset : lines.offset + len(lines) + 1]
    body = memoryview(data)[int(ends[0]) : int(ends[-1])]
    for start in range(0, len(body), _CHUNK_BYTES):
        yield body[start : start + _CHUNK_BYTES]


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(_present_texts(column), pa.scalar(_NULL, pa.large_string()))


def _present_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    data_type = column.type
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        texts = column.cast(pa.large_string())
        for plain, escaped in _ESCAPES:
            texts = pc.replace_substring(texts, plain, escaped)
        return texts
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        hexed = [None if value is None else f"\\\\x{value.hex()}" for value in column.to_pylist()]
        return pa.chunked_array([pa.array(hexed, pa.large_string())])
    if pa.types.is_timestamp(data_type):
        plain = column.cast(pa.timestamp(data_type.unit))  # of one with a zone: its time in UTC
        texts = plain.cast(pa.timestamp("us")).cast(pa.string()).cast(pa.large_string())
        if data_type.tz is None:
            return texts
        return pc.binary_join_element_wise(texts, pa.scalar("+00", pa.large_string()), pa.scalar("", pa.large_string()))
    return column.cast(pa.string()).cast(pa.large_string())
