"""Convert values that were decoded by an Avro schema to the declared types, exactly.

Logical types are read here and not by the decoder, so that nothing is lost: it knows no nanoseconds, and fails on times
that Python has no datetime for.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from milepost.language import ColumnType
from milepost.sources.messages.exact_values import (
    UNIT_NS,
    Convert,
    Unfit,
    day_number,
    list_converter,
    plain_converter,
    struct_converter,
    time_in_unit,
    unfit,
    unscaled_decimal,
)

LOGICAL_TYPE = "logicalType"
_HIDDEN = "milepost.logicalType"
_TIMES = {"timestamp-millis": "ms", "timestamp-micros": "us", "timestamp-nanos": "ns"}
_LOCAL = "local-"
_MAX_SCALE = 10_000
_PLAIN = {
    "bool": {"boolean"},
    "string": {"string", "enum"},
    **{kind: {"int", "long"} for kind in ("int8", "int16", "int32", "int64")},
    **{kind: {"float", "double", "int", "long"} for kind in ("float32", "float64")},
}
_CLASSES = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "string": str,
    "enum": str,
    "bytes": bytes,
    "fixed": bytes,
    "array": list,
    "map": dict,
    "record": dict,
}


def without_logical_types(schema: Any) -> Any:
    """Return a schema by which the decoder returns plain numbers, texts and bytes."""
    if isinstance(schema, list):
        return [without_logical_types(item) for item in schema]
    if isinstance(schema, dict):
        return {
            _HIDDEN if key == LOGICAL_TYPE else key: without_logical_types(item) if key != "default" else item
            for key, item in schema.items()
        }
    return schema


class AvroEncodings:
    """Chooses converters for one writer schema.

    Args:
        named: its named types, by full name, parsed and without logical types.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def fields(self, schema: Any) -> Mapping[str, Any] | None:
        """Return the schemas of a record's fields, by name; None: it is no record."""
        schema = self._resolved(schema)
        if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
            return None
        return {field["name"]: field["type"] for field in schema["fields"]}

    def converter(self, type_: ColumnType, schema: Any) -> Convert:
        """Return the converter for a column. It raises Unfit."""
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return self._union(type_, schema)
        avro, logical = (schema, None) if isinstance(schema, str) else (schema["type"], schema.get(_HIDDEN))
        if type_.element is not None:
            if avro != "array":
                return _refusing(avro, logical, type_)
            return list_converter(type_, self.converter(type_.element, schema["items"]))
        if type_.kind == "struct":
            fields = self.fields(schema)
            if fields is None:
                return _refusing(avro, logical, type_)
            return struct_converter(
                type_,
                {name: self.converter(inner, fields[name]) for name, inner in type_.fields if name in fields}
                | {name: _null for name, _ in type_.fields if name not in fields},
            )
        if type_.kind == "timestamp":
            return _timestamp(type_, avro, logical)
        if type_.kind == "date":
            return _day if (avro, logical) == ("int", "date") else _refusing(avro, logical, type_)
        if type_.kind == "decimal":
            return _decimal(type_, avro, logical, schema)
        if type_.kind == "binary":
            return _same if avro in ("bytes", "fixed") and logical != "decimal" else _refusing(avro, logical, type_)
        plain = plain_converter(type_)
        assert plain is not None, type_
        return plain if avro in _PLAIN[type_.kind] else _refusing(avro, logical, type_)

    def _union(self, type_: ColumnType, branches: list[Any]) -> Convert:
        """Return the converter of a union. A value of it has one Python class, by which its branch is found."""
        converters: dict[type, list[Convert]] = {}
        for branch in branches:
            resolved = self._resolved(branch)
            name = resolved if isinstance(resolved, str) else resolved["type"]
            if name != "null":
                converters.setdefault(_CLASSES[name], []).append(self.converter(type_, branch))

        def convert(value: Any) -> Any:
            found = converters.get(type(value), [])
            if len(found) != 1:
                raise Unfit("is of a union with several types of this kind, and it is not known which")
            return found[0](value)

        return convert

    def _resolved(self, schema: Any) -> Any:
        """Return a schema without names, and without a wrapper such as {"type": {"type": "int"}}."""
        while True:
            if isinstance(schema, str) and schema in self._named:
                schema = self._named[schema]
            elif isinstance(schema, dict) and isinstance(schema.get("type"), (dict, list)):
                schema = schema["type"]
            else:
                return schema


def _timestamp(type_: ColumnType, avro: str, logical: str | None) -> Convert:
    name = (logical or "").removeprefix(_LOCAL)
    if avro != "long" or name not in _TIMES:
        return _refusing(avro, logical, type_)
    is_utc = logical == name
    if is_utc is not type_.utc:
        other = f"timestamp[{type_.unit}]" if type_.utc else f"timestamp[{type_.unit}, UTC]"
        return partial(_refuse, f"is a {logical}, which is a {other}")
    return partial(_time, type_, UNIT_NS[_TIMES[name]])


def _decimal(type_: ColumnType, avro: str, logical: str | None, schema: Any) -> Convert:
    if avro in ("int", "long") and logical is None:
        return partial(_whole_decimal, type_)
    scale = schema.get("scale", 0) if isinstance(schema, dict) else None
    if avro not in ("bytes", "fixed") or logical != "decimal" or type(scale) is not int or abs(scale) > _MAX_SCALE:
        return _refusing(avro, logical, type_)
    return partial(unscaled_decimal, type_, scale)


def _refusing(avro: str, logical: str | None, type_: ColumnType) -> Convert:
    what = avro if logical is None else f"{avro} ({logical})"
    return partial(_refuse, f"is a {what[:100]} in the schema, which is not read as {type_}")


def _refuse(reason: str, _value: Any) -> Any:
    raise Unfit(reason)


def _null(_value: Any) -> Any:
    return None


def _same(value: Any) -> Any:
    return value


def _day(value: Any) -> int:
    return day_number(value)


def _time(type_: ColumnType, unit_ns: int, value: Any) -> int:
    return time_in_unit(value, unit_ns, type_)


def _whole_decimal(type_: ColumnType, value: Any) -> Decimal:
    if type(value) is not int:
        raise unfit(type_)
    return unscaled_decimal(type_, 0, value.to_bytes(9, "big", signed=True))
