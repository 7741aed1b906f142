"""Order the rows of a run and choose column encodings so that the file is small.

Rows are sorted by key, the key column with the fewest values first. Then neighboring keys differ little or share a
prefix, and the start of a window repeats over many rows. Readers sort rows themselves, so nothing depends on this
order. The choice is a pure function of the rows and is made on a sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.state.layers.key_groups import Hashes, Ints
from milepost.state.layers.layer import stable_order

_WORD_BITS = 64
_SAMPLED_BLOCKS = 8
_BLOCK_ROWS = 512
_PACKED_ROWS = 32
"""Rows that DELTA_BINARY_PACKED writes with one width."""
_FEW = 16
"""Minimum sampled rows per value for which dictionary packing of numbers is considered."""
_REPEATS = 2
"""Minimum sampled rows per value for which text is packed by dictionary."""


class Packing(Enum):
    """How a column's values are written before zstd; the value is Parquet's name of it.

    DICTIONARY: few values. DIFFERENCES: neighbours are alike. BYTE_PLANES: all first bytes, then all second ones, …:
    numbers that only share a range. SHARED_BEGINNINGS: text by what differs from the text before. PLAIN: as it is.
    """

    DICTIONARY = "RLE_DICTIONARY"
    DIFFERENCES = "DELTA_BINARY_PACKED"
    BYTE_PLANES = "BYTE_STREAM_SPLIT"
    SHARED_BEGINNINGS = "DELTA_BYTE_ARRAY"
    PLAIN = "PLAIN"


@dataclass(frozen=True, slots=True)
class _Words:
    """A column's values as unsigned words of `bits` bits in the same order. Nulls count as 0 or empty."""

    words: Hashes
    bits: int

    def ranked(self) -> _Words:
        """Return words with the same order in as few bits as the distinct values need."""
        order, values = _order(self.words, self.bits)
        ranks = np.empty(len(order), dtype=np.uint64)
        ranks[order] = np.cumsum(np.concatenate([[False], values[1:] != values[:-1]]), dtype=np.uint64)
        return _Words(ranks, int(ranks[order[-1]]).bit_length())


def order_by_key(rows: pa.Table, key: Sequence[str]) -> Ints | None:
    """Return row positions in key order, the column with the fewest values first; None to keep the order as it is.

    Text is sorted by 8 bytes after the prefix common to all values. Floats, decimals and booleans are ignored.

    Args:
        rows: in one chunk.

    Two shops, three minutes: by shop first, then by minute.

    >>> order_by_key(pa.table({"minute": [3, 1, 2, 1], "shop": ["b", "a", "a", "b"]}), ["minute", "shop"]).tolist()
    [1, 2, 3, 0]
    """
    columns = [words for name in key if (words := _words(rows.column(name))) is not None]
    if not columns or not rows.num_rows:
        return None
    if len(columns) > 1:
        columns.sort(key=lambda column: np.unique(_sampled(column.words)).size)
    for widest in sorted(range(len(columns)), key=lambda at: -columns[at].bits):
        if sum(column.bits for column in columns) > _WORD_BITS:
            columns[widest] = columns[widest].ranked()
    if sum(column.bits for column in columns) > _WORD_BITS:
        return np.lexsort([column.words for column in reversed(columns)])
    word = reduce(
        lambda joined, column: (joined << np.uint64(column.bits)) | column.words if column.bits else joined,
        columns[1:],
        columns[0].words,
    )
    bits = sum(column.bits for column in columns)
    return _order(word, bits)[0] if bits else None


def _order(words: Hashes, bits: int) -> tuple[Ints, Hashes]:
    """Return the result of `stable_order` for words that use only the lowest `bits` bits."""
    # It replaces the lowest bits by positions. If they say something, it is several times as slow.
    return stable_order(words << np.uint64(_WORD_BITS - bits))


def copied_columns(rows: pa.Table) -> dict[str, str]:
    """Return, for each column with the same values as an earlier one, that column, e.g. a window's timer and expiry.

    Floats are not compared, because 0.0 and -0.0 would be equal.

    >>> copied_columns(pa.table({"timer": [5, 6], "n": [1, 2], "expires": [5, 6]}))
    {'expires': 'timer'}
    """
    copies: dict[str, str] = {}
    originals: list[str] = []
    for name in rows.column_names:
        column = rows.column(name)
        if not pa.types.is_floating(column.type) and not pa.types.is_nested(column.type):
            same = next((original for original in originals if _equal_columns(rows.column(original), column)), None)
            if same is None:
                originals.append(name)
            else:
                copies[name] = same
    return copies


def _equal_columns(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    return bool(left.type == right.type and left.equals(right))


def packings(rows: pa.Table) -> Mapping[str, Packing]:
    """Return the best packing of each column. Nested columns are omitted.

    Args:
        rows: in one chunk.
    """
    packings_by_column = {name: _packing(rows.column(name)) for name in rows.column_names}
    return {name: packing for name, packing in packings_by_column.items() if packing is not None}


def _packing(column: pa.ChunkedArray) -> Packing | None:
    data_type = column.type
    if pa.types.is_nested(data_type):
        return None
    if pa.types.is_floating(data_type):
        return Packing.PLAIN if pa.types.is_float16(data_type) else Packing.BYTE_PLANES
    if pa.types.is_boolean(data_type):
        return Packing.PLAIN
    if _is_text(data_type):
        sample = pa.concat_arrays([column.chunk(0).slice(start, _BLOCK_ROWS) for start in _starts(len(column))])
        few = pc.count_distinct(sample).as_py() * _REPEATS <= len(sample)
        return Packing.DICTIONARY if few else Packing.SHARED_BEGINNINGS
    numbers = _numbers(column)
    return Packing.DICTIONARY if numbers is None else _packing_of_numbers(numbers)


def _packing_of_numbers(values: npt.NDArray[np.signedinteger]) -> Packing:
    """Return the packing that needs the fewest bits, estimated from sampled blocks of rows."""
    sample = _sampled(values)
    distinct = np.unique(sample).size
    sizes = {Packing.DIFFERENCES: _bits_as_differences(values), Packing.BYTE_PLANES: _bits_as_byte_planes(sample)}
    if distinct * _FEW <= len(sample):
        sizes[Packing.DICTIONARY] = float((distinct - 1).bit_length())
    return min(sizes, key=lambda packing: sizes[packing])


def _bits_as_differences(values: npt.NDArray[np.signedinteger]) -> float:
    """Return the bits per value of groups of differences, each with the bit width of its largest difference."""
    widths: list[float] = []
    for start in _starts(len(values)):
        differences = np.diff(values[start : start + _BLOCK_ROWS + 1].astype(np.int64))
        differences = differences[: len(differences) // _PACKED_ROWS * _PACKED_ROWS]
        if not len(differences):
            continue
        above = (differences - differences.min()).view(np.uint64).reshape(-1, _PACKED_ROWS).max(axis=1)
        widths.append(float(np.log2(above.astype(np.float64) + 1).mean()))
    return float(np.mean(widths)) if widths else 0.0


def _bits_as_byte_planes(sample: npt.NDArray[np.signedinteger]) -> float:
    """Return the bits per value of byte planes: the sum of the entropies of the planes."""
    planes = np.ascontiguousarray(sample).view(np.uint8).reshape(len(sample), -1)
    bits = 0.0
    for plane in planes.T:
        counts = np.bincount(plane, minlength=1)
        shares = counts[counts > 0] / len(sample)
        bits -= float((shares * np.log2(shares)).sum())
    return bits


def _starts(count: int) -> list[int]:
    """Return the starts of the sampled blocks for `count` rows."""
    if count <= _SAMPLED_BLOCKS * _BLOCK_ROWS:
        return list(range(0, count, _BLOCK_ROWS)) or [0]
    return [(count - _BLOCK_ROWS) * block // (_SAMPLED_BLOCKS - 1) for block in range(_SAMPLED_BLOCKS)]


def _sampled(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.concatenate([values[start : start + _BLOCK_ROWS] for start in _starts(len(values))])


def _words(column: pa.ChunkedArray) -> _Words | None:
    if _is_text(column.type):
        return _text_words(column.chunk(0)) if column.num_chunks else None
    numbers = _numbers(column)
    if numbers is None or not len(numbers):
        return None
    least = numbers.min()
    words = numbers.astype(np.int64).view(np.uint64) - np.uint64(int(least) & 0xFFFFFFFFFFFFFFFF)
    return _Words(words, int(words.max()).bit_length())


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[np.signedinteger] | None:
    """Return integers, dates and times in their memory representation, nulls as 0; None for other types.

    uint64 values are read as int64. Their order differs, but it is still a consistent order.
    """
    data_type = column.type
    counted = pa.types.is_integer(data_type) or pa.types.is_date(data_type) or pa.types.is_timestamp(data_type)
    if not (counted or pa.types.is_time(data_type)) or column.num_chunks != 1:
        return None
    storage = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[data_type.bit_width]
    values = column.chunk(0).view(storage)
    return (values.fill_null(0) if values.null_count else values).to_numpy()


def _is_text(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_large_binary(data_type)
    )


def _text_words(texts: pa.Array) -> _Words:
    """Return the 8 bytes after the prefix common to all values, as big-endian integers."""
    values = pc.fill_null(texts.cast(pa.large_binary()), b"")
    bounds = pc.min_max(values).as_py()
    least, most = bounds["min"], bounds["max"]
    shared = next((at for at, (one, other) in enumerate(zip(least, most, strict=False)) if one != other), len(least))
    offsets = np.frombuffer(values.buffers()[1], dtype="<i8")[values.offset : values.offset + len(values) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + shared + 8, dtype=np.uint8)
    if last > first:
        padded[: last - first] = np.frombuffer(values.buffers()[2], dtype=np.uint8, count=last - first, offset=first)
    every_word = np.ndarray(shape=(last - first + shared + 1,), dtype=">u8", buffer=padded, strides=(1,))
    used = np.clip(np.diff(offsets) - shared, 0, 8)
    keep = np.array([(2 ** (8 * count) - 1) << (64 - 8 * count) for count in range(9)], dtype=np.uint64)
    words = every_word[offsets[:-1] - first + shared].astype(np.uint64) & keep[used]
    unused = 8 * (8 - int(used.max()))
    return _Words(words >> np.uint64(unused) if unused < _WORD_BITS else words, _WORD_BITS - unused)
