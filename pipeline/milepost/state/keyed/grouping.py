"""Number rows by key in the order of the state hash.

Lookup and storage use the same order, so the stored rows are a sorted layer without another sort. Keys that share a
hash are distinguished by their key columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.state.layers.exact_keys import key_numbers, same_keys
from milepost.state.layers.key_groups import Hashes, Ints
from milepost.state.layers.layer import stable_order

_SAMPLE = 32_768
_ROWS_PER_KEY = 4
"""From this many sampled rows per key on, a hash table fits the processor's cache and is faster than a sort."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """The distinct keys of rows, numbered.

    Attributes:
        hashes: hash of each key, ascending. codes: number of each row's key. first: first row of each key.
    """

    hashes: Hashes
    codes: Ints
    first: Ints


def number_keys(keys: pa.Table, hasher: Callable[[pa.Table], Hashes]) -> Numbered:
    """Number the distinct keys in the order of their hashes. Keys with the same hash are ordered by first row.

    Args:
        keys: key columns of each row, normalized so that equal keys have equal bits.
        hasher: returns the state hash of rows.

    Keys b and c share the hash 5, and b comes first:

    >>> rows = pa.table({"k": ["b", "a", "b", "c"]})
    >>> hash_of = {"a": np.uint64(7), "b": np.uint64(5), "c": np.uint64(5)}
    >>> numbered = number_keys(rows, lambda some: np.array([hash_of[k] for k in some["k"].to_pylist()]))
    >>> numbered.hashes.tolist(), numbered.codes.tolist(), numbered.first.tolist()
    ([5, 5, 7], [0, 2, 0, 1], [0, 3, 1])
    """
    if np.unique(hasher(keys.slice(0, _SAMPLE))).size * _ROWS_PER_KEY > min(keys.num_rows, _SAMPLE):
        return _by_order(keys, hasher(keys))
    codes, first = _by_table(keys)
    ranked, ordered = stable_order(hasher(keys.take(pa.array(first))))
    number = np.empty(len(ranked), dtype=np.int64)
    number[ranked] = np.arange(len(ranked))
    return Numbered(ordered, number[codes], first[ranked])


def _by_table(keys: pa.Table) -> tuple[Ints, Ints]:
    """Number keys in the order of their first rows. Return the number of each row's key and each key's first row."""
    codes, count = np.zeros(keys.num_rows, dtype=np.int64), 1
    for column in keys.columns:
        column_codes, column_count = _dense(column)
        combined = codes * column_count + column_codes
        codes, count = (column_codes, column_count) if count == 1 else _dense(pa.array(combined))
    first = np.empty(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return codes, first


def _dense(column: pa.Array | pa.ChunkedArray) -> tuple[Ints, int]:
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    encoded = pc.dictionary_encode(pa.concat_arrays(chunks), null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def _by_order(keys: pa.Table, hashes: Hashes) -> Numbered:
    order, ordered = stable_order(hashes)
    begins = np.ones(len(order), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    numbers = np.cumsum(begins) - 1
    first = order[begins]
    repeats = np.flatnonzero(~begins)
    rows = order[repeats]
    other = ~same_keys(keys, rows, keys, first[numbers[repeats]], keys.column_names)
    if other.any():
        return _number_colliding_keys(keys, hashes, order, first[numbers], repeats[other])
    codes = np.empty(len(order), dtype=np.int64)
    codes[order] = numbers
    return Numbered(ordered[begins], codes, first)


def _number_colliding_keys(keys: pa.Table, hashes: Hashes, order: Ints, first: Ints, others: Ints) -> Numbered:
    """Number keys when different keys share a hash.

    Args:
        first: for each row in `order`, the first row with its hash.
        others: positions in `order` of rows with a key other than that row's.
    """
    count = len(order)
    crowded = order[np.isin(hashes[order], hashes[order[others]])]
    numbers = key_numbers(keys.take(pa.array(crowded)))
    _, at = np.unique(numbers, return_index=True)
    of_row = np.empty(count, dtype=np.int64)
    of_row[order] = first
    of_row[crowded] = crowded[at][numbers]
    firsts = np.flatnonzero(of_row == np.arange(count))
    ranked, ordered = stable_order(hashes[firsts])
    firsts = firsts[ranked]
    number = np.empty(count, dtype=np.int64)
    number[firsts] = np.arange(len(firsts))
    return Numbered(ordered, number[of_row], firsts)
