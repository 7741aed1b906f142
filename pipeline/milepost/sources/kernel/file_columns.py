"""Map declared columns to those of a table's data file, by name or as a constant value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

INT96_UNIT = "us"
"""Unit for timestamps of Parquet's type INT96, which Spark writes. No type of a table has a finer unit."""


@dataclass(frozen=True, slots=True)
class FileColumns:
    """Mapping of the declared columns to one data file. A column in neither `names` nor `values` is null.

    With `names` {"id": "col-1f"} and `values` {"day": "2026-03-01"}, a row of the file with col-1f = 7 is read as id 7,
    day 2026-03-01.

    Attributes:
        names: declared column -> its name in the file, which may lack it.
        values: declared column -> its value in all rows, as `value_text` returns it.
    """

    names: Mapping[str, str]
    values: Mapping[str, str | None]

    def schema(self, stored: pa.Schema, declared: pa.Schema) -> pa.Schema:
        """Return the declared columns that a file has, with their types in the file."""
        fields = [declared.field(name) for name in declared.names if name in self.values]
        names = {name: self.names[name] for name in declared.names if name in self.names and name not in self.values}
        for name, file_name in names.items():
            found = map(stored.field, stored.get_all_field_indices(file_name))
            fields += [pa.field(name, _in_zone(field.type, declared.field(name).type)) for field in found]
        return pa.schema(fields)

    def stored(self, present: Sequence[str]) -> list[str]:
        """Return the file's names of the declared columns that are read from it."""
        return [self.names[name] for name in present if name not in self.values]

    def declared(self, batch: pa.RecordBatch, declared: pa.Schema) -> pa.RecordBatch:
        """Return a batch of the file under the declared names, with the constant columns added."""
        columns = {}
        for field in declared:
            if field.name in self.values:
                value = value_of(self.values[field.name], field.type)
                columns[field.name] = pa.repeat(value, batch.num_rows)
            elif self.names.get(field.name) in batch.schema.names:
                column = batch.column(self.names[field.name])
                columns[field.name] = column.cast(_in_zone(column.type, field.type))
        if not columns:
            return batch.select([])
        return pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])


def _in_zone(stored: pa.DataType, declared: pa.DataType) -> pa.DataType:
    """Return a timestamp type with the table's time zone. INT96, which Spark writes, has no zone and is in UTC."""
    is_time = pa.types.is_timestamp(stored) and pa.types.is_timestamp(declared)
    return pa.timestamp(stored.unit, declared.tz) if is_time else stored


def value_text(value: Any, type_: pa.DataType) -> str | None:
    """Return a value as text that `value_of` reads back: null, or 2026-03-01, 1.50, or bytes in hexadecimal."""
    if value is None:
        return None
    if pa.types.is_binary(type_):
        return bytes(value).hex()
    return str(pa.scalar(value, type_).cast(pa.string()).as_py())


def value_of(text: str | None, type_: pa.DataType) -> pa.Scalar:
    """Parse a text that `value_text` returned. Raises ArrowInvalid, ValueError: it is of another type."""
    if text is None:
        return pa.scalar(None, type_)
    if pa.types.is_binary(type_):
        return pa.scalar(bytes.fromhex(text), type_)
    return pa.scalar(text).cast(type_)
