"""Columns of the state brought to the keys that asked for them, from several layers at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.state.key_groups import Ints
from pipeline.state.layer import Bools, Layer

_STORAGE = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows of one layer. `asked`: the position of each in the answer; `rows`: where it is in the layer."""

    asked: Ints
    layer: Layer
    rows: Ints


def found_of(hits: Sequence[Hits], count: int) -> Bools:
    """Which positions of the answer get a row."""
    found = np.zeros(count, dtype=np.bool_)
    for part in hits:
        found[part.asked] = True
    return found


def gather(field: pa.Field, hits: Sequence[Hits], found: Bools) -> pa.Array | pa.ChunkedArray:
    """One column of the answer, null where nothing was found; no position is hit twice."""
    words = [_words(part.layer.rows.column(field.name)) for part in hits]
    values = None
    for part, column in zip(hits, words, strict=True):
        if column is None:
            return _gather_values(field, hits, found)
        if values is None:
            values = np.zeros(len(found), dtype=column.dtype)
        values[part.asked] = column[part.rows]
    if values is None:
        return pa.nulls(len(found), field.type)
    return pa.array(values, mask=None if bool(found.all()) else ~found).view(field.type)


def _gather_values(field: pa.Field, hits: Sequence[Hits], found: Bools) -> pa.Array | pa.ChunkedArray:
    source, taken = np.zeros(len(found), dtype=np.int64), 0
    for part in hits:
        source[part.asked] = np.arange(taken, taken + len(part.rows))
        taken += len(part.rows)
    columns = [part.layer.rows.column(field.name).take(pa.array(part.rows)) for part in hits]
    values = pa.concat_arrays([chunk for column in columns for chunk in column.chunks])
    return values.take(pa.array(source, mask=~found))


def _words(column: pa.ChunkedArray) -> npt.NDArray[np.signedinteger] | None:
    """Values of a fixed width without a null, as they lie in memory; None for other columns."""
    if column.null_count or column.num_chunks != 1:
        return None
    if not pa.types.is_primitive(column.type) or pa.types.is_boolean(column.type):
        return None
    storage = _STORAGE.get(column.type.bit_width // 8)
    return None if storage is None else column.chunk(0).view(storage).to_numpy()
