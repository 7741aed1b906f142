"""Store integers and times in as few bytes as their range needs.

A column is narrowed if the differences between its values and the minimum fit into a smaller type. Widening restores
it exactly. The schema metadata records the original types, so `widened` accepts any table, narrowed or not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_NARROWED: Final = b"milepost.narrowed"
_LEAST_ROWS: Final = 1024
"""Tables with fewer rows are not narrowed."""

Numbers: TypeAlias = npt.NDArray[np.integer[Any]]

_SIGNED: Final[Mapping[int, pa.DataType]] = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_DISTANCES: Final = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.uint32))
_TYPES: Final[Mapping[str, pa.DataType]] = {
    str(data_type): data_type
    for data_type in (
        *(pa.int16(), pa.int32(), pa.int64(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
        *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")),
    )
}
"""Types that are narrowed, by name."""


@dataclass(frozen=True, slots=True)
class _Note:
    """How a column was narrowed. Its stored values are differences from `least`."""

    data_type: pa.DataType
    least: int


def narrowed(rows: pa.Table, kept: Sequence[str] = ()) -> pa.Table:
    """Return rows with narrower integer columns where that is lossless. Equal rows give equal results.

    Args:
        rows: each column in one chunk. kept: columns that stay as they are.
    """
    if rows.num_rows < _LEAST_ROWS or len(set(rows.column_names)) < rows.num_columns:
        return rows
    columns, notes = list(rows.columns), {}
    for index, field in enumerate(rows.schema):
        found = None if field.name in kept else _narrow(columns[index])
        if found is not None:
            columns[index], least = found
            notes[field.name] = (str(field.type), least)
    if not notes:
        return rows
    fields = [field.with_type(column.type) for field, column in zip(rows.schema, columns, strict=True)]
    metadata = {**(rows.schema.metadata or {}), _NARROWED: json.dumps(notes, separators=(",", ":")).encode()}
    return pa.table(columns, schema=pa.schema(fields, metadata))


def widened(rows: pa.Table) -> pa.Table:
    """Undo `narrowed`, also for a selection of columns and rows. Other rows are returned unchanged."""
    notes = _notes(rows)
    if not notes:
        return rows
    columns, fields = list(rows.columns), list(rows.schema)
    for index, field in enumerate(fields):
        note = notes.get(field.name)
        if note is not None:
            columns[index] = pa.array(_plus(columns[index].combine_chunks().to_numpy(), note)).view(note.data_type)
            fields[index] = field.with_type(note.data_type)
    metadata = {key: value for key, value in rows.schema.metadata.items() if key != _NARROWED}
    return pa.table(columns, schema=pa.schema(fields, metadata or None))


def type_of(rows: pa.Table, name: str) -> pa.DataType:
    """Return a column's type before narrowing."""
    note = _notes(rows).get(name)
    return rows.column(name).type if note is None else note.data_type


def numbers_at(rows: pa.Table, name: str, positions: npt.NDArray[np.int64]) -> Numbers | None:
    """Return values of a column of numbers or times, in their memory representation before narrowing.

    Returns:
        None for a column of another type, with a null, or in several chunks.
    """
    column = rows.column(name)
    if column.null_count or column.num_chunks != 1:
        return None
    if not pa.types.is_primitive(column.type) or pa.types.is_boolean(column.type):
        return None
    note = _notes(rows).get(name)
    if note is not None:
        return _plus(column.chunk(0).to_numpy()[positions], note)
    stored = _SIGNED.get(column.type.bit_width)
    return None if stored is None else column.chunk(0).view(stored).to_numpy()[positions]


def values_at(rows: pa.Table, name: str, positions: npt.NDArray[np.int64]) -> pa.ChunkedArray:
    """Return values of a column of any type, as before narrowing."""
    return widened(rows.select([name]).take(pa.array(positions))).column(0)


def _notes(rows: pa.Table) -> Mapping[str, _Note]:
    metadata = rows.schema.metadata
    return {} if metadata is None or _NARROWED not in metadata else _parsed(metadata[_NARROWED])


@lru_cache(maxsize=1024)
def _parsed(noted: bytes) -> Mapping[str, _Note]:
    return {name: _Note(_TYPES[type_name], least) for name, (type_name, least) in json.loads(noted).items()}


def _narrow(column: pa.ChunkedArray) -> tuple[pa.Array, int] | None:
    """Return a column as differences from its minimum, and the minimum; None if it would not become smaller.

    >>> distances, least = _narrow(pa.chunked_array([[1_700_000_000, 1_700_000_003, 1_700_000_255, 1_700_000_001]]))
    >>> str(distances.type), distances.to_pylist(), least
    ('uint8', [0, 3, 255, 1], 1700000000)
    """
    if column.null_count or column.num_chunks != 1 or str(column.type) not in _TYPES:
        return None
    values = column.chunk(0).view(_stored(column.type)).to_numpy()
    least, most = int(values.min()), int(values.max())
    for dtype in _DISTANCES:
        if dtype.itemsize < values.itemsize and most - least <= np.iinfo(dtype).max:
            # The subtraction wraps around in the narrow type, where the differences fit.
            return pa.array(np.subtract(values, values.dtype.type(least), dtype=dtype, casting="unsafe")), least
    return None


def _plus(distances: Numbers, note: _Note) -> Numbers:
    dtype = np.dtype(_stored(note.data_type).to_pandas_dtype())
    values: Numbers = np.add(distances, np.array(note.least, dtype), dtype=dtype, casting="unsafe")
    return values


def _stored(data_type: pa.DataType) -> pa.DataType:
    """Return the signed integer type of the same width."""
    return _SIGNED[data_type.bit_width]
