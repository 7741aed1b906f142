"""Convert types between Arrow and Delta, without loss."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from milepost.sinks.formats.refusals import Refusal, column_refused, refuse_case_variants
from milepost.tables.delta import PLAIN_TYPES, arrow_type

_NAMES = {data_type: name for name, data_type in PLAIN_TYPES.items()}
_MAX_DIGITS = 38

_INSTEAD: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_uint8, "int16"),
    (pa.types.is_uint16, "int32"),
    (pa.types.is_uint32, "int64"),
    (pa.types.is_uint64, "decimal128(20, 0)"),
    (pa.types.is_float16, "float32"),
    (pa.types.is_date64, "date32"),
    (pa.types.is_time, "int64, as microseconds"),
    (pa.types.is_duration, "int64, as microseconds"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_string_view, "string"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_binary_view, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_dictionary, "the type of its values"),
    (pa.types.is_large_list, "list"),
    (pa.types.is_fixed_size_list, "list"),
    (pa.types.is_decimal, "decimal128 of at most 38 digits, with a scale from 0 to the precision"),
    (pa.types.is_null, "the type of its future values"),
)
"""Types that Delta cannot hold, each with the type to cast it to."""

_INVALID_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that Delta's protocol forbids in column names."""


def check_columns(sink: str, schema: pa.Schema) -> None:
    """Refuse columns with types or names that a Delta table cannot hold.

    Raises: InvalidRequest, naming the column.
    """
    for field in schema:
        if (misfit := _misfit(field.type)) is not None:
            reason = f"has the type {field.type}; a Delta table cannot hold {misfit}"
            raise column_refused(sink, field.name, Refusal(reason, f"cast it to {_instead_of(misfit)}"))
        for name in (field.name, *_names_within(field.type)):
            if _INVALID_IN_NAMES.search(name) or not name:
                reason = (
                    f"has the name {name!r}; a Delta table allows no empty name, and no spaces, line breaks or "
                    "characters ,;{}()= in a name"
                )
                raise column_refused(sink, field.name, Refusal(reason, "rename it: `SELECT … AS other_name`"))
    refuse_case_variants(sink, schema.names)


def delta_schema(schema: pa.Schema) -> str:
    """Return the schema as JSON of Delta's log. All columns are nullable. Precondition: `check_columns` passed."""
    return json.dumps(_struct([delta_field(field) for field in schema]))


def delta_field(field: pa.Field) -> dict[str, Any]:
    """Return one nullable column, as in Delta's log."""
    return {"name": field.name, "type": _delta_type(field.type), "nullable": True, "metadata": {}}


def arrow_schema(sink: str, delta: dict[str, Any]) -> pa.Schema | None:
    """Return the Arrow schema of a schema in Delta's log; None if it has no columns.

    Raises: InvalidRequest: a column has an unknown type.
    """
    fields = []
    for column in delta["fields"]:
        try:
            fields.append(pa.field(column["name"], arrow_type(column["type"]), nullable=column["nullable"]))
        except KeyError as error:
            reason = f"of the table has the type {error.args[0]}, which Milepost cannot write"
            hint = "give the sink a new path, or drop the column"
            raise column_refused(sink, column["name"], Refusal(reason, hint)) from error
    return pa.schema(fields) if fields else None


def has_timestamp_ntz(data_type: pa.DataType) -> bool:
    """Return whether a type is or contains a timestamp without a time zone."""
    if pa.types.is_nested(data_type):
        return any(has_timestamp_ntz(field.type) for field in _children(data_type))
    return bool(pa.types.is_timestamp(data_type) and data_type.tz is None)


def _delta_type(data_type: pa.DataType) -> str | dict[str, Any]:
    if data_type in _NAMES:
        return _NAMES[data_type]
    if pa.types.is_decimal128(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_list(data_type):
        item = data_type.value_field
        return {"type": "array", "elementType": _delta_type(item.type), "containsNull": item.nullable}
    if pa.types.is_map(data_type):
        item = data_type.item_field
        return {
            "type": "map",
            "keyType": _delta_type(data_type.key_type),
            "valueType": _delta_type(item.type),
            "valueContainsNull": item.nullable,
        }
    return _struct([{**delta_field(field), "nullable": field.nullable} for field in _children(data_type)])


def _struct(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "struct", "fields": fields}


def _misfit(data_type: pa.DataType) -> pa.DataType | None:
    """Return the type, or the type nested in it, that Delta cannot hold; None if Delta can hold all of it."""
    if data_type in _NAMES:
        return None
    if pa.types.is_decimal128(data_type):
        return None if 0 <= data_type.scale <= data_type.precision <= _MAX_DIGITS else data_type
    if pa.types.is_list(data_type) or pa.types.is_map(data_type) or pa.types.is_struct(data_type):
        within = [_misfit(field.type) for field in _children(data_type)]
        empty = data_type if pa.types.is_struct(data_type) and not within else None
        return next((misfit for misfit in within if misfit is not None), empty)
    return data_type


def _instead_of(misfit: pa.DataType) -> str:
    if pa.types.is_timestamp(misfit):
        return "timestamp[us, tz=UTC]" if misfit.tz else "timestamp[us]"
    return next((other for matches, other in _INSTEAD if matches(misfit)), "a type that Delta supports, such as string")


def _names_within(data_type: pa.DataType) -> list[str]:
    """Return the field names of all structs within a type."""
    if not pa.types.is_nested(data_type):
        return []
    children = _children(data_type)
    own = [field.name for field in children] if pa.types.is_struct(data_type) else []
    return own + [name for field in children for name in _names_within(field.type)]


def _children(data_type: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(data_type):
        return [data_type.key_field, data_type.item_field]
    return [data_type.field(index) for index in range(data_type.num_fields)]
