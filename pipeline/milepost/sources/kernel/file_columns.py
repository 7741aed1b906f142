"""Where a data file of a table has the declared columns: under other names, or as one value for all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

INT96_UNIT = "us"
"""Unit of timestamps of Parquet's type INT96, which Spark writes. A table's own types have no finer one."""


@dataclass(frozen=True, slots=True)
class FileColumns:
    """How one data file has the declared columns. A column in neither mapping is null.

    With `names` {"id": "col-1f"} and `values` {"day": "2026-03-01"}, a row of the file with col-1f = 7 is read as id 7,
    day 2026-03-01.

    Attributes:
        names: declared column -> its name in the file, which may lack it.
        values: declared column -> its value in all rows, as `value_text` returns it.
    """

    names: Mapping[str, str]
    values: Mapping[str, str | None]

    def schema(self, stored: pa.Schema, declared: pa.Schema) -> pa.Schema:
        """Return the declared columns that a file has, with the types that they have there."""
        fields = [declared.field(name) for name in declared.names if name in self.values]
        names = {name: self.names[name] for name in declared.names if name in self.names and name not in self.values}
        found = {name: stored.get_all_field_indices(of_file) for name, of_file in names.items()}
        for name, every in found.items():
            fields += [pa.field(name, _in_zone(stored.field(at).type, declared.field(name).type)) for at in every]
        return pa.schema(fields)

    def stored(self, present: Sequence[str]) -> list[str]:
        """Return the names in the file of those of the declared columns that are read from it."""
        return [self.names[name] for name in present if name not in self.values]

    def declared(self, batch: pa.RecordBatch, declared: pa.Schema) -> pa.RecordBatch:
        """Return a batch of the file with the names of the declared columns, and with those that are constant."""
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
    """Return the type of a timestamp with the zone of the table. INT96, which Spark writes, has none and is in UTC."""
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
    """Return the value of a text. Raises ArrowInvalid, ValueError: it is of another type."""
    if text is None:
        return pa.scalar(None, type_)
    if pa.types.is_binary(type_):
        return pa.scalar(bytes.fromhex(text), type_)
    return pa.scalar(text).cast(type_)
