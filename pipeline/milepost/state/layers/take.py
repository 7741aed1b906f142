"""Taking gathers one column's values from several layers."""

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
    """Rows of one layer. `asked`: the position of each in the answer; `rows`: where it is in the layer."""

    asked: Ints
    layer: Layer
    rows: Ints


def found_of(hits: Sequence[Hits], count: int) -> Bools:
    """Return which positions of the answer get a row."""
    found = np.zeros(count, dtype=np.bool_)
    for part in hits:
        found[part.asked] = True
    return found


def take(field: pa.Field, hits: Sequence[Hits], found: Bools) -> pa.Array | pa.ChunkedArray:
    """Return one column of the answer, null where nothing was found; no position is hit twice.

    Four keys are asked for. The newer layer has the second one, in its row 0, the older one the last two.

    >>> newer, older = (Layer(np.arange(2), pa.table({"n": n}), np.zeros(2, np.bool_)) for n in ([7, 8], [1, 2]))
    >>> hits = [Hits(np.array([1]), newer, np.array([0])), Hits(np.array([2, 3]), older, np.array([1, 0]))]
    >>> take(pa.field("n", pa.int64()), hits, found_of(hits, 4)).to_pylist()
    [None, 7, 2, 1]
    """
    values = None
    for part in hits:
        numbers = numbers_at(part.layer.stored, field.name, part.rows)
        if numbers is None:
            return _gather_values(field, hits, found)
        if values is None:
            values = np.zeros(len(found), dtype=numbers.dtype)
        values[part.asked] = numbers
    if values is None:
        return pa.nulls(len(found), field.type)
    return pa.array(values, mask=None if bool(found.all()) else ~found).view(field.type)


def _gather_values(field: pa.Field, hits: Sequence[Hits], found: Bools) -> pa.Array | pa.ChunkedArray:
    source, taken = np.zeros(len(found), dtype=np.int64), 0
    for part in hits:
        source[part.asked] = np.arange(taken, taken + len(part.rows))
        taken += len(part.rows)
    columns = [values_at(part.layer.stored, field.name, part.rows) for part in hits]
    values = pa.concat_arrays([chunk for column in columns for chunk in column.chunks])
    return values.take(pa.array(source, mask=~found))
