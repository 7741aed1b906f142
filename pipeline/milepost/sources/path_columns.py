"""Partition columns: values taken from `name=value` parts of an object's key."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

import pyarrow as pa

from milepost.language import ColumnType, to_arrow
from milepost.sources.contract import BadObject, SourceObject

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The text for null in a partition path, as Hive, Spark and pyarrow write it."""


class PathColumns:
    """Appends a source's partition columns to the batches of an object."""

    def __init__(self, partitions: Mapping[str, ColumnType]) -> None:
        self.fields = tuple(pa.field(name, to_arrow(type_)) for name, type_ in partitions.items())

    def values(self, obj: SourceObject) -> tuple[pa.Scalar, ...]:
        """Return the object's value for each column.

        Raises:
            BadObject: the key lacks the part of a column, or its value is not of the column's type.
        """
        if not self.fields:
            return ()
        parts = dict(part.split("=", 1) for part in obj.key.split("/")[:-1] if "=" in part)
        scalars = []
        for field in self.fields:
            if field.name not in parts:
                raise BadObject(obj.key, None, field.name, None, f"is not in the key as {field.name}=…")
            text = parts[field.name]
            try:
                text = unquote(text, errors="strict")
                value = None if text == NULL_PARTITION else text
                scalars.append(pa.array([value], pa.string()).cast(field.type)[0])
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                raise BadObject(obj.key, None, field.name, text, f"in the key is not a {field.type}") from error
        return tuple(scalars)

    def fault(self, obj: SourceObject) -> str | None:
        """Return as one clause why a column has no value in the key; None when all have one."""
        try:
            self.values(obj)
        except BadObject as bad:
            value = "" if bad.value is None else f"{bad.value!r} "
            return f"column {bad.column}: {value}{bad.reason}"
        return None

    def append(self, batch: pa.RecordBatch, values: tuple[pa.Scalar, ...]) -> pa.RecordBatch:
        """Return the batch with the partition columns appended."""
        if not self.fields:
            return batch
        arrays = [pa.repeat(value, batch.num_rows) for value in values]
        return pa.RecordBatch.from_arrays([*batch.columns, *arrays], schema=pa.schema([*batch.schema, *self.fields]))
