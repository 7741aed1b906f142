"""Convert data files between Milepost's records and manifest entries.

No Parquet footer is read: rows, size and statistics are those that the subtask recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from milepost.errors import StateCorrupt
from milepost.sinks.formats.iceberg.partitioning import partition_record, partition_values
from milepost.tables.iceberg import key_below
from milepost.tables.records import StagedFile


def data_file(root: str, file: StagedFile, schema: Schema, spec: PartitionSpec) -> DataFile:
    """Return the manifest entry of a staged file.

    Args:
        root: location of the table. schema, spec: of the table.
    Raises: StateCorrupt: its statistics cannot be read.
    """
    nulls, lower, upper = _bounds(file, schema)
    entry = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{root}/{file.key}",
        file_format=FileFormat.PARQUET,
        partition=partition_record(file.partition, spec, schema),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        column_sizes=None,
        value_counts=dict.fromkeys(nulls, file.rows) or None,
        null_value_counts=nulls or None,
        nan_value_counts=None,
        lower_bounds=lower or None,
        upper_bounds=upper or None,
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    entry.spec_id = spec.spec_id
    return entry


def foreign_file(root: str, file: DataFile, schema: Schema, spec: PartitionSpec) -> StagedFile:
    """Return the record of a file that an external writer may have added. Its checksum is unknown, so empty."""
    partition = partition_values(file.partition, spec, schema)
    key = key_below(root, file.file_path)
    return StagedFile(key, file.record_count, file.file_size_in_bytes, sha256="", partition=partition)


def _bounds(file: StagedFile, schema: Schema) -> tuple[dict[int, int], dict[int, bytes], dict[int, bytes]]:
    """Return null counts, lower bounds and upper bounds of the top-level primitive columns, by field id.

    A doubtful bound is left out, because an engine that trusts it would skip rows.
    """
    recorded = _recorded(file)
    nulls: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for field in schema.fields:
        if not isinstance(field.field_type, PrimitiveType):
            continue
        count = recorded["nullCount"].get(field.name)
        if isinstance(count, int):
            nulls[field.field_id] = count
        minimum, maximum = (_bound(field, recorded[which].get(field.name)) for which in ("minValues", "maxValues"))
        if minimum is not None and maximum is not None:
            lower[field.field_id], upper[field.field_id] = minimum, maximum
    return nulls, lower, upper


def _recorded(file: StagedFile) -> dict[str, Mapping[str, Any]]:
    try:
        recorded = json.loads(file.statistics) if file.statistics is not None else {}
        return {which: dict(recorded.get(which) or {}) for which in ("nullCount", "minValues", "maxValues")}
    except (ValueError, TypeError, AttributeError) as error:
        raise StateCorrupt(f"{file.key}: its recorded statistics are not those of columns", key=file.key) from error


def _bound(field: NestedField, value: object) -> bytes | None:
    parse = _PARSERS.get(type(field.field_type))
    if parse is None or value is None or not isinstance(field.field_type, PrimitiveType):
        return None
    try:
        return to_bytes(field.field_type, parse(value))
    except (TypeError, ValueError, OverflowError):
        return None


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(value)


def _moment(value: object) -> datetime:
    moment = datetime.fromisoformat(_text(value))
    if moment.tzinfo is None:
        raise ValueError(value)
    return moment.astimezone(UTC)


def _local_moment(value: object) -> datetime:
    """Return a timestamp without a zone. Its recorded text may end in ``Z``."""
    return datetime.fromisoformat(_text(value).removesuffix("Z")).replace(tzinfo=None)


_PARSERS: Mapping[type, Callable[[object], Any]] = {
    IntegerType: _whole,
    LongType: _whole,
    StringType: _text,
    DateType: lambda value: date.fromisoformat(_text(value)),
    TimestampType: _local_moment,
    TimestamptzType: _moment,
}
