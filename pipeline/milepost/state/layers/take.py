"""Gather one column's values from several layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from milepost.state.layers.integer_packing import numbers_at, values_at
from milepost.state.layers.key_groups import Ints
from milepost.state.layers.layer import Bools, Layer


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows of one layer, and their positions in the result.

    Attributes:
        positions: of each row, its index in the result.
        rows: of each row, its index in the layer.
    """

    positions: Ints
    layer: Layer
    rows: Ints


def hit_mask(hits: Sequence[Hits], count: int) -> Bools:
    """Return which of the `count` positions of the result have a row."""
    is_hit = np.zeros(count, dtype=np.bool_)
    for part in hits:
        is_hit[part.positions] = True
    return is_hit


def take(field: pa.Field, hits: Sequence[Hits], is_hit: Bools) -> pa.Array | pa.ChunkedArray:
    """Return one column of the result, null at positions without a row. No position has two rows.

    Four keys are looked up. The newer layer has the second key, in its row 0; the older layer has the last two.

    >>> newer, older = (Layer(np.arange(2), pa.table({"n": n}), np.zeros(2, np.bool_)) for n in ([7, 8], [1, 2]))
    >>> hits = [Hits(np.array([1]), newer, np.array([0])), Hits(np.array([2, 3]), older, np.array([1, 0]))]
    >>> take(pa.field("n", pa.int64()), hits, hit_mask(hits, 4)).to_pylist()
    [None, 7, 2, 1]
    """
    values = None
    for part in hits:
        numbers = numbers_at(part.layer.stored, field.name, part.rows)
        if numbers is None:
            return _gather_values(field, hits, is_hit)
        if values is None:
            values = np.zeros(len(is_hit), dtype=numbers.dtype)
        values[part.positions] = numbers
    if values is None:
        return pa.nulls(len(is_hit), field.type)
    return pa.array(values, mask=None if bool(is_hit.all()) else ~is_hit).view(field.type)


def _gather_values(field: pa.Field, hits: Sequence[Hits], is_hit: Bools) -> pa.Array | pa.ChunkedArray:
    source, offset = np.zeros(len(is_hit), dtype=np.int64), 0
    for part in hits:
        source[part.positions] = np.arange(offset, offset + len(part.rows))
        offset += len(part.rows)
    columns = [values_at(part.layer.stored, field.name, part.rows) for part in hits]
    values = pa.concat_arrays([chunk for column in columns for chunk in column.chunks])
    return values.take(pa.array(source, mask=~is_hit))
