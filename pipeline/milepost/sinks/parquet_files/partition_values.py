"""Convert partition values to and from text, in the form of Delta's log.

text  unchanged            integer       -5       bool  true
date  2024-02-29           UTC time      2024-02-29T01:02:03.456789Z, without a zone 2024-02-29 01:02:03.456789
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa

from milepost.tables.records import PartitionValues


def has_partition_type(data_type: pa.DataType) -> bool:
    """Return whether all engines write values of the type alike. Floats are excluded for NaN and -0.0."""
    is_time = pa.types.is_timestamp(data_type) and data_type.unit == "us"
    plain = (pa.types.is_string, pa.types.is_signed_integer, pa.types.is_boolean, pa.types.is_date32)
    return is_time or any(matches(data_type) for matches in plain)


def partition_text(value: Any) -> str | None:
    """Return the text of a value; None for null."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        text = f"{value.year:04}-{value:%m-%d %H:%M:%S.%f}"  # %Y does not pad years before 1000
        return text if value.tzinfo is None else text.replace(" ", "T") + "Z"
    return f"{value.year:04}-{value:%m-%d}" if isinstance(value, date) else str(value)


def partition_value(text: str | None, data_type: pa.DataType) -> Any:
    """Return the Python value of a text. Raises ValueError."""
    if text is None or pa.types.is_string(data_type):
        return text
    if pa.types.is_boolean(data_type):
        return {"true": True, "false": False}[text]
    if pa.types.is_date32(data_type):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(data_type):
        return datetime.fromisoformat(text)
    return int(text)


def with_partition(rows: pa.Table, partition: PartitionValues, schema: pa.Schema) -> pa.Table:
    """Return a file's rows with its partition columns, which engines leave out of their files.

    Args:
        schema: of the requested columns.
    """
    for name, text in partition:
        if name not in rows.column_names and name in schema.names:
            data_type = schema.field(name).type
            value = pa.scalar(partition_value(text, data_type), data_type)
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows
