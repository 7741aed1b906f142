"""Compare keys by their columns: nulls are equal, NaNs are equal, and -0.0 equals 0.0.

Equal hashes only mean that keys may be equal. When few keys share a hash, pairs of rows are compared. When many do, the
keys are sorted, so that an adversary who produces colliding keys cannot cause a quadratic number of comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.state.layers.integer_packing import Numbers, numbers_at, type_of, values_at
from milepost.state.layers.key_groups import Ints

Bools: TypeAlias = npt.NDArray[np.bool_]


def same_keys(left: pa.Table, left_rows: Ints, right: pa.Table, right_rows: Ints, key: Sequence[str]) -> Bools:
    """Return whether the keys of pairs of rows are equal. Either side may be narrowed."""
    equal = np.ones(len(left_rows), dtype=np.bool_)
    for name in key:
        same_type = type_of(left, name) == type_of(right, name)
        left_words = _words_at(left, name, left_rows) if same_type else None
        right_words = _words_at(right, name, right_rows) if left_words is not None else None
        if left_words is not None and right_words is not None:
            equal &= left_words == right_words
        else:
            equal &= _equal(values_at(left, name, left_rows), values_at(right, name, right_rows))
    return equal


def common_keys(
    left: pa.Table, left_rows: Ints, right: pa.Table, right_rows: Ints, key: Sequence[str]
) -> tuple[Ints, Ints]:
    """Return the pairs of rows with equal keys: (index into left_rows, index into right_rows), ordered by the first.

    Either side may be narrowed. Costs a sort of all keys.

    Args:
        right_rows: rows with distinct keys.
    """
    columns = [
        _joined(values_at(left, name, left_rows).cast(type_of(right, name)), values_at(right, name, right_rows))
        for name in key
    ]
    numbers = key_numbers(pa.table(columns, names=list(key)))
    place = np.full(len(numbers), -1, dtype=np.int64)
    place[numbers[len(left_rows) :]] = np.arange(len(right_rows))
    found = place[numbers[: len(left_rows)]]
    equal = np.flatnonzero(found >= 0)
    return equal, found[equal]


def key_numbers(keys: pa.Table) -> Ints:
    """Number the distinct keys of rows from 0, in the order of their values. Costs a sort."""
    sortable = pa.table([_sortable(column) for column in keys.columns], names=keys.column_names)
    order = pc.sort_indices(sortable, sort_keys=[(name, "ascending") for name in keys.column_names]).to_numpy()
    order = order.astype(np.int64)
    begins = np.zeros(len(order), dtype=np.int64)
    begins[1:] = ~same_keys(sortable, order[1:], sortable, order[:-1], keys.column_names)
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(begins)
    return numbers


def _joined(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([*left.chunks, *right.chunks], left.type)


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column in a type that Arrow sorts, in which the same values are equal."""
    data_type = column.type
    if pa.types.is_dictionary(data_type):
        return _sortable(column.cast(data_type.value_type))
    if pa.types.is_string_view(data_type) or pa.types.is_binary_view(data_type):
        return column.cast(pa.large_binary())
    return column.cast(pa.float32()) if pa.types.is_float16(data_type) else column


def _words_at(rows: pa.Table, name: str, positions: Ints) -> Numbers | None:
    """Return values as integers, which are equal if the values are; None for floats and columns with nulls."""
    return None if pa.types.is_floating(rows.column(name).type) else numbers_at(rows, name, positions)


def _equal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> Bools:
    if pa.types.is_null(left.type) and pa.types.is_null(right.type):
        return np.ones(len(left), dtype=np.bool_)
    if left.type != right.type:
        left = left.cast(right.type)
    same = pc.fill_null(pc.equal(left, right), False)
    if left.null_count and right.null_count:
        same = pc.or_(same, pc.and_(left.is_null(), right.is_null()))
    if pa.types.is_floating(left.type):
        both_nan = pc.and_(pc.is_nan(left), pc.is_nan(right))
        same = pc.or_(same, pc.fill_null(both_nan, False))
    return same.to_numpy().astype(np.bool_)
