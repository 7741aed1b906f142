"""Convert schemas between Arrow and Iceberg.

Iceberg identifies columns by field id, Arrow by name. A name mapping in the table connects the two, so data files
carry no field ids and are the same as those of the other formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from milepost.errors import InvalidRequest
from milepost.sinks.formats.refusals import Refusal, column_refused, refuse_case_variants

_PRIMITIVES: tuple[tuple[pa.DataType, IcebergType], ...] = (
    (pa.bool_(), BooleanType()),
    (pa.int32(), IntegerType()),
    (pa.int64(), LongType()),
    (pa.float32(), FloatType()),
    (pa.float64(), DoubleType()),
    (pa.date32(), DateType()),
    (pa.time64("us"), TimeType()),
    (pa.timestamp("us"), TimestampType()),
    (pa.timestamp("us", "UTC"), TimestamptzType()),
    (pa.string(), StringType()),
    (pa.binary(), BinaryType()),
)
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


class UnsupportedType(Exception):
    """A type without an equivalent in the other format."""


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
            fields.append(_field(field, ids))
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


def _field(field: pa.Field, ids: Iterator[int]) -> NestedField:
    number = next(ids)
    return NestedField(number, field.name, _type(field.type, ids), required=not field.nullable)


def _type(data_type: pa.DataType, ids: Iterator[int]) -> IcebergType:
    for equivalent, iceberg_type in _PRIMITIVES:
        if data_type == equivalent:
            return iceberg_type
    if pa.types.is_decimal128(data_type) and data_type.scale >= 0:
        return DecimalType(data_type.precision, data_type.scale)
    if pa.types.is_fixed_size_binary(data_type):
        return FixedType(data_type.byte_width)
    if pa.types.is_list(data_type):
        element = _field(data_type.value_field, ids)
        return ListType(element.field_id, element.field_type, element_required=element.required)
    if pa.types.is_struct(data_type):
        return StructType(*(_field(child, ids) for child in data_type))
    if pa.types.is_map(data_type) and not data_type.keys_sorted:
        key, item = _field(data_type.key_field, ids), _field(data_type.item_field, ids)
        return MapType(key.field_id, key.field_type, item.field_id, item.field_type, value_required=item.required)
    raise UnsupportedType


def to_arrow(schema: Schema) -> pa.Schema | None:
    """Return the Arrow schema of a table; None if the table has no columns yet.

    Raises: InvalidRequest: a column has a type that Milepost does not write.
    """
    if not schema.fields:
        return None
    try:
        return pa.schema([_arrow_field(field) for field in schema.fields])
    except UnsupportedType as error:
        raise InvalidRequest(
            f"the table has a column of the type {error}, which is not available in this version. Nothing was changed.",
            hint="give the sink a new path",
        ) from None


def _arrow_field(field: NestedField) -> pa.Field:
    return pa.field(field.name, arrow_type(field.field_type), nullable=not field.required)


def arrow_type(iceberg_type: IcebergType) -> pa.DataType:
    """Return the Arrow type of an Iceberg type. Raises UnsupportedType."""
    for equivalent, primitive in _PRIMITIVES:
        if iceberg_type == primitive:
            return equivalent
    match iceberg_type:
        case DecimalType():
            return pa.decimal128(iceberg_type.precision, iceberg_type.scale)
        case FixedType():
            return pa.binary(len(iceberg_type))
        case ListType():
            return pa.list_(_arrow_field(iceberg_type.element_field))
        case StructType():
            return pa.struct([_arrow_field(field) for field in iceberg_type.fields])
        case MapType():
            return pa.map_(arrow_type(iceberg_type.key_type), _arrow_field(iceberg_type.value_field))
    raise UnsupportedType(str(iceberg_type))
