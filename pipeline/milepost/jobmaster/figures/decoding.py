"""Decode tables with figures of past epochs as compact rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.arrow import int64_array, numpy_array
from milepost.errors import StateCorrupt
from milepost.jobmaster.figures.epoch_rows import COLUMNS, PHASES, TIMES, EpochRow
from milepost.jobmaster.figures.timings import PHASE_GROUPS

_ZERO = int64_array([0])[0]

_GROUP_OF = {f"{phase}_ms": at for at, phases in enumerate(PHASE_GROUPS.values()) for phase in phases}

_MAX_TIME_MS = 253_402_300_800_000
"""Start of the year 10,000, in ms since 1970."""


def with_times_ms(table: pa.Table, key: str) -> pa.Table:
    """Return a table with times in ms since 1970. Raises StateCorrupt: a time is before 1970 or after 9999."""
    for name in TIMES:
        times = table.column(name).cast(pa.int64())
        table = table.set_column(table.column_names.index(name), name, times)
        limits = pc.min_max(times).as_py()
        for time in limits.values():
            if time is not None and not 0 <= time < _MAX_TIME_MS:
                raise StateCorrupt(f"object {key} with figures of past epochs has the time {time} ms", key=key)
    return table


def decode_epochs(table: pa.Table, key: str) -> list[EpochRow]:
    """Return the rows of a table with `COLUMNS` and, if it has them, `PHASES`.

    Raises: StateCorrupt: a time cannot be represented.
    """
    table = with_times_ms(table, key)
    values = {name: _values(table.column(name)) for name in COLUMNS}
    if PHASES not in table.column_names:
        return [EpochRow(*row) for row in zip(*values.values(), strict=True)]
    rows = zip(*values.values(), _phase_groups(table.column(PHASES)), strict=True)
    return [EpochRow._make(row) for row in rows]


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column, several times faster than `to_pylist`. Equal texts share one object."""
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_int64(column.type) and not column.null_count:
        return [number for chunk in column.chunks for number in numpy_array(chunk).tolist()]
    if not pa.types.is_string(column.type):
        return column.to_pylist()
    found = column.combine_chunks().dictionary_encode(null_encoding="encode")
    texts = found.dictionary.to_pylist()
    return [texts[at] for at in numpy_array(found.indices).tolist()]


def _phase_groups(phases: pa.ChunkedArray) -> list[tuple[int, ...]]:
    """Return the milliseconds by group of each row, without a Python object per phase.

    Rows {plan_ms: 3, begin_ms: 4, read_ms: 5} and null, with the groups plan and read: (7, 5) and ().
    """
    found: list[tuple[int, ...]] = []
    for chunk in phases.chunks:
        offsets = numpy_array(chunk.offsets)
        first, last = int(offsets[0]), int(offsets[-1])
        lengths = np.diff(offsets)
        row_of = np.repeat(np.arange(len(chunk)), lengths)
        keys = chunk.keys[first:last].dictionary_encode()
        group_of_key = np.fromiter((_GROUP_OF.get(name, -1) for name in keys.dictionary.to_pylist()), np.int64)
        groups = group_of_key[numpy_array(keys.indices)]
        spent = numpy_array(chunk.items[first:last].fill_null(_ZERO))
        known = groups >= 0
        sums = np.zeros((len(chunk), len(PHASE_GROUPS)), np.int64)
        np.add.at(sums, (row_of[known], groups[known]), spent[known])
        measured = zip((lengths > 0).tolist(), chunk.is_valid().to_pylist(), strict=True)
        found += [tuple(row) if all(known) else () for row, known in zip(sums.tolist(), measured, strict=True)]
    return found
