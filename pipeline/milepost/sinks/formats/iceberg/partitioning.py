"""Convert partitions between Milepost's records and Iceberg's metadata. Only identity transforms are supported."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from milepost.sinks.formats.iceberg.schemas import to_arrow
from milepost.sinks.parquet_files.partition_values import partition_text, partition_value
from milepost.tables.records import PartitionValues


def partition_spec(columns: Schema, partition_by: tuple[str, ...]) -> PartitionSpec:
    """Return the partition spec of a new table. Precondition: the table has these columns."""
    fields = [
        PartitionField(columns.find_field(name).field_id, PARTITION_FIELD_ID_START + number, IdentityTransform(), name)
        for number, name in enumerate(partition_by)
    ]
    return PartitionSpec(*fields)


def partition_columns(spec: PartitionSpec, columns: Schema) -> tuple[str | None, ...]:
    """Return the column of each partition field; None for a field with a transform other than the identity."""
    return tuple(
        columns.find_column_name(field.source_id) if isinstance(field.transform, IdentityTransform) else None
        for field in spec.fields
    )


def partition_record(values: PartitionValues, spec: PartitionSpec, columns: Schema) -> Record:
    """Return a file's partition as manifests store it: dates in days and timestamps in microseconds since 1970."""
    types, texts = _types(columns), dict(values)
    names = partition_columns(spec, columns)
    return Record(*(None if name is None else _stored(texts[name], types[name]) for name in names))


def partition_values(record: Record, spec: PartitionSpec, columns: Schema) -> PartitionValues:
    """Return the partition of any writer's file in the form of Milepost's records."""
    types = _types(columns)
    return tuple(
        (name, partition_text(_read(record[position], types[name])))
        for position, name in enumerate(partition_columns(spec, columns))
        if name is not None
    )


def _types(columns: Schema) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in to_arrow(columns) or ()}


def _stored(text: str | None, data_type: pa.DataType) -> Any:
    value = partition_value(text, data_type)
    number_type = _number_type(data_type)
    return value if number_type is None or value is None else pa.scalar(value, data_type).cast(number_type).as_py()


def _read(stored: Any, data_type: pa.DataType) -> Any:
    number_type = _number_type(data_type)
    if number_type is None or not isinstance(stored, int):
        return stored
    return pa.scalar(stored, number_type).cast(data_type).as_py()


def _number_type(data_type: pa.DataType) -> pa.DataType | None:
    if pa.types.is_date32(data_type):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(data_type) else None
