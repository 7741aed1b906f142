"""Convert schemas between Arrow and Iceberg.

Iceberg identifies columns by field id, Arrow by name. A name mapping in the table connects the two, so data files
carry no field ids and are the same as those of the other formats.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyiceberg.schema import Schema

from milepost.errors import InvalidRequest
from milepost.sinks.formats.refusals import Refusal, column_refused, refuse_case_variants
from milepost.tables.iceberg import UnsupportedType, arrow_field, iceberg_field

_CAST_TO = (
    (pa.types.is_uint64, "DECIMAL(20, 0)"),
    (pa.types.is_uint32, "BIGINT"),
    (pa.types.is_integer, "INT"),
    (pa.types.is_float16, "FLOAT"),
    (pa.types.is_timestamp, "TIMESTAMP in microseconds, in UTC or without a time zone"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_time, "a time in microseconds"),
    (pa.types.is_decimal, "DECIMAL with at most 38 digits"),
)


def to_iceberg(sink: str, schema: pa.Schema) -> Schema:
    """Return the Iceberg schema: field ids from 1, in depth-first order.

    Raises:
        InvalidRequest: Iceberg has no equivalent of a column's type, or two names on one level differ only in case,
            which engines treat as one name.
    """
    _refuse_case_variants(sink, schema)
    ids = iter(range(1, 1 << 31))
    fields = []
    for field in schema:
        try:
            fields.append(iceberg_field(field, ids))
        except UnsupportedType:
            reason = f"has the type {field.type}, which an Iceberg table cannot hold"
            raise column_refused(sink, field.name, Refusal(reason, f"cast it to {_instead_of(field.type)}")) from None
    return Schema(*fields)


def _refuse_case_variants(sink: str, fields: Iterable[pa.Field]) -> None:
    """Refuse names on one level that differ only in case."""
    fields = list(fields)
    refuse_case_variants(sink, (field.name for field in fields))
    for field in fields:
        if pa.types.is_nested(field.type):
            _refuse_case_variants(sink, (field.type.field(index) for index in range(field.type.num_fields)))


def _instead_of(data_type: pa.DataType) -> str:
    return next((name for matches, name in _CAST_TO if matches(data_type)), "a type that Iceberg supports")


def to_arrow(schema: Schema) -> pa.Schema | None:
    """Return the Arrow schema of a table; None if the table has no columns yet.

    Raises: InvalidRequest: a column has a type that Milepost does not write.
    """
    if not schema.fields:
        return None
    try:
        return pa.schema([arrow_field(field) for field in schema.fields])
    except UnsupportedType as error:
        raise InvalidRequest(
            f"the table has a column of the type {error}, which is not available in this version. Nothing was changed.",
            hint="give the sink a new path",
        ) from None
