"""Convert types between Arrow and Iceberg."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
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


class UnsupportedType(Exception):
    """A type without an equivalent in the other format."""


def iceberg_field(field: pa.Field, ids: Iterator[int]) -> NestedField:
    """Return the Iceberg field of an Arrow field, with the next of the ids. Raises UnsupportedType."""
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
        element = iceberg_field(data_type.value_field, ids)
        return ListType(element.field_id, element.field_type, element_required=element.required)
    if pa.types.is_struct(data_type):
        return StructType(*(iceberg_field(child, ids) for child in data_type))
    if pa.types.is_map(data_type) and not data_type.keys_sorted:
        key, item = iceberg_field(data_type.key_field, ids), iceberg_field(data_type.item_field, ids)
        return MapType(key.field_id, key.field_type, item.field_id, item.field_type, value_required=item.required)
    raise UnsupportedType


def arrow_field(field: NestedField) -> pa.Field:
    """Return the Arrow field of an Iceberg field. Raises UnsupportedType."""
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
            return pa.list_(arrow_field(iceberg_type.element_field))
        case StructType():
            return pa.struct([arrow_field(field) for field in iceberg_type.fields])
        case MapType():
            return pa.map_(arrow_type(iceberg_type.key_type), arrow_field(iceberg_type.value_field))
    raise UnsupportedType(str(iceberg_type))
