"""Identify rows without a key by two hashes over all their columns.

Multi-row tables store equal rows once, with a count. Two rows are equal exactly if all their values are: there is one
NaN, -0.0 differs from 0.0, and null equals only null. Columns are first made *plain*: a float becomes its bits, a
struct becomes a validity column and its fields, a list becomes the text of its elements. The identity is two key hashes
of the plain columns, each with its own secret. Rows with the same identity are still compared by their plain columns.

    >>> plain = plain_columns(pa.table({"x": [0.0, -0.0, None, 0.0]}))
    >>> first, _ = identity_of(plain, KeyHash("00" * 16))
    >>> [first.tolist().index(value) for value in first.tolist()]
    [0, 1, 2, 0]

The identity is part of a stored format, versioned by `ROW_IDENTITY`. Under that key a state schema records the columns
that the identity covers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.protocol.records import ROW_IDENTITY
from milepost.state.layers.key_groups import Ints
from milepost.state.layers.key_hash import KeyHash


def plain_columns(rows: pa.Table) -> pa.Table:
    """Return columns that are equal, by key comparison, in exactly those rows that are equal in all columns.

    A column of a type without a stable hash, such as an interval, is refused later, by `identity_of`.
    """
    columns = [column for name in rows.column_names for column in _plain(_one_chunk(rows.column(name)))]
    return pa.table(columns, names=[str(at) for at in range(len(columns))])


def identity_of(plain: pa.Table, hasher: KeyHash) -> tuple[Ints, Ints]:
    """Return both identity hashes of each row. Raises InvalidRequest: a column's type has no stable hash."""
    first, second = (KeyHash(secret)(plain, plain.column_names) for secret in _secrets(hasher.secret))
    return first.view(np.int64), second.view(np.int64)


@lru_cache(maxsize=16)
def _secrets(secret: str) -> tuple[str, str]:
    first, second = (hashlib.sha256(ROW_IDENTITY + f": {secret} {at}".encode()).hexdigest()[:32] for at in range(2))
    return first, second


def _plain(array: pa.Array) -> Iterator[pa.Array]:
    data_type = array.type
    if pa.types.is_dictionary(data_type):
        yield from _plain(array.dictionary_decode())
    elif pa.types.is_floating(data_type):
        wide = array.cast(pa.float64())
        yield pc.if_else(pc.is_nan(wide), pa.scalar(float("nan")), wide).view(pa.int64())
    elif pa.types.is_struct(data_type):
        yield array.is_valid()
        for child in array.flatten():
            yield from _plain(child)
    elif pa.types.is_nested(data_type):
        yield _texts_of_lists(array)
    elif pa.types.is_decimal(data_type) and data_type.bit_width > 128:
        yield array.cast(pa.string())
    else:
        number = next((wide for is_of, wide in _AS_NUMBERS if is_of(data_type)), None)
        yield array if number is None else array.cast(number(data_type)).cast(pa.int64())


_AS_NUMBERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType]], ...] = (
    (pa.types.is_time32, lambda _: pa.int32()),
    (pa.types.is_time64, lambda _: pa.int64()),
    (pa.types.is_duration, lambda _: pa.int64()),
)
"""Times of day and durations become integers in their unit."""


def _texts_of_lists(array: pa.Array) -> pa.Array:
    """Return each list or map as the text of its elements or entries; null for null."""
    lists = array.cast(_as_list(array.type))
    elements = plain_columns(pa.table({"element": lists.values}))
    values = list(zip(*(_without_times(column).to_pylist() for column in elements.columns), strict=True))
    bounds, valid = lists.offsets.to_pylist(), lists.is_valid().to_pylist()
    texts = [repr(values[bounds[at] : bounds[at + 1]]) if is_valid else None for at, is_valid in enumerate(valid)]
    return pa.array(texts, pa.string())


def _without_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return timestamps and dates as their stored integers, and any other column unchanged."""
    if not pa.types.is_temporal(column.type):
        return column
    return column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())


def _as_list(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_map(data_type):
        entry = pa.struct([pa.field("key", data_type.key_type, nullable=False), ("value", data_type.item_type)])
        return pa.list_(entry)
    return pa.list_(data_type.value_type)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], column.type), *column.chunks])
