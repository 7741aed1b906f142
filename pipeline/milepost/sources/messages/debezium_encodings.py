"""Convert the values of Debezium's change events to the declared types, exactly.

The schema of an event says how a value is encoded: its Kafka Connect type, and a name such as
`io.debezium.time.MicroTimestamp`. Of an event without a schema, the declared type and the connector's modes say it:

    declared             value                    a row has
    timestamp[us]        1529507596945104         2018-06-20 15:13:16.945104
    timestamp[us, UTC]   "2018-06-20T13:13:16Z"   2018-06-20 13:13:16 UTC
    date                 17702                    2018-06-20
    decimal(10,2)        "BNI=" (precise)         12.34
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

from milepost.language import ColumnType
from milepost.language.times import EPOCH
from milepost.sources.messages.exact_values import (
    UNIT_NS,
    Convert,
    Unfit,
    day_number,
    exact_decimal,
    list_converter,
    plain_converter,
    struct_converter,
    time_in_unit,
    unfit,
    unscaled_decimal,
)

Encoding: TypeAlias = "Mapping[str, Any] | None"
"""A Kafka Connect schema as the JSON converter writes it; None: the event has none."""

_TIME_UNITS = {
    "io.debezium.time.Timestamp": "ms",
    "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
}
_ZONED_TEXT, _LOCAL_TEXT = "io.debezium.time.ZonedTimestamp", "io.debezium.time.IsoTimestamp"
_DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_DATE_TEXT = "io.debezium.time.IsoDate"
_DECIMAL, _ANY_SCALE = "org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal"
_MODE_UNITS = {"connect": "ms", "microseconds": "us", "nanoseconds": "ns"}
_NUMBERS = {"int8", "int16", "int32", "int64"}
_CONNECT_TYPES = {
    "bool": {"boolean"},
    "string": {"string"},
    **dict.fromkeys(("int8", "int16", "int32", "int64"), _NUMBERS),
    **{key: {"float", "double", "float32", "float64", *_NUMBERS} for key in ("float32", "float64")},
}
_NO_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_TIME = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?")
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)Z?")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?")
_NS_LIMITS = (-(1 << 63), (1 << 63) - 1)
_MAX_SCALE = 10_000


class EventEncodings:
    """Chooses converters; picklable.

    Args:
        time_precision_mode, decimal_handling_mode: of the connector, for events without a schema; None: not known.
    """

    def __init__(self, time_precision_mode: str | None, decimal_handling_mode: str | None) -> None:
        self._time_mode, self._decimal_mode = time_precision_mode, decimal_handling_mode

    def converter(self, type_: ColumnType, encoding: Encoding) -> Convert:
        """Return the converter for a column. It raises Unfit."""
        if type_.element is not None:
            return list_converter(type_, self.converter(type_.element, _inner(encoding, "items")))
        if type_.kind == "struct":
            return struct_converter(
                type_, {name: self.converter(inner, field_of(encoding, name)) for name, inner in type_.fields}
            )
        if type_.kind == "timestamp":
            return self._timestamp(type_, encoding)
        if type_.kind == "date":
            return self._date(type_, encoding)
        if type_.kind == "decimal":
            return self._decimal(type_, encoding)
        if type_.kind == "binary":
            if encoding is not None and encoding.get("type") != "bytes":
                return _refusing(f"is a {encoding.get('type')}, not bytes: declare the column as string")
            return partial(_bytes, type_)
        plain = plain_converter(type_)
        assert plain is not None, type_
        if encoding is not None and encoding.get("type") not in _CONNECT_TYPES[type_.kind]:
            return _refusing(f"is a {_described(encoding)}, which is not read as {type_}")
        return partial(_float, plain) if type_.kind in ("float32", "float64") else plain

    def _timestamp(self, type_: ColumnType, encoding: Encoding) -> Convert:
        if encoding is None:
            unit = type_.unit if self._time_mode == "adaptive" else _MODE_UNITS.get(self._time_mode or "")
            return partial(_time, type_, unit, self._time_mode == "isostring", "is a number: set `time_precision_mode`")
        name = encoding.get("name")
        if name in _TIME_UNITS:
            return partial(_time, type_, _TIME_UNITS[name], False, "")
        if name in (_ZONED_TEXT, _LOCAL_TEXT):
            return partial(_time, type_, None, name == _LOCAL_TEXT, f"is not of type {type_}")
        return _refusing(f"is a {_described(encoding)}, which is no timestamp")

    def _date(self, type_: ColumnType, encoding: Encoding) -> Convert:
        if encoding is None or encoding.get("name") in (*_DAYS, _DATE_TEXT):
            return partial(_date, type_)
        return _refusing(f"is a {_described(encoding)}, which is no date")

    def _decimal(self, type_: ColumnType, encoding: Encoding) -> Convert:
        if encoding is None:
            return partial(_bare_decimal, type_, self._decimal_mode)
        name = encoding.get("name")
        if name == _DECIMAL:
            parameters = encoding.get("parameters")
            scale = str(parameters.get("scale")) if isinstance(parameters, dict) else ""
            if not re.fullmatch(r"-?\d{1,4}", scale):
                return _refusing("is a decimal whose schema has no `scale`")
            return partial(_unscaled_decimal, type_, int(scale))
        if name == _ANY_SCALE:
            return partial(_any_scale_decimal, type_)
        if encoding.get("type") == "string":
            return partial(_decimal_text, type_)
        if encoding.get("type") in {"float", "double", "float32", "float64", *_NUMBERS}:
            return partial(_decimal_number, type_)
        return _refusing(f"is a {_described(encoding)}, which is no decimal")


def field_of(encoding: Encoding, name: str) -> Encoding:
    """Return the schema of a field of a struct; {}, which no value fits, if a schema lacks it."""
    if encoding is None:
        return None
    fields = encoding.get("fields")
    for field in fields if isinstance(fields, list) else ():
        if isinstance(field, dict) and field.get("field") == name:
            return field
    return {}


def _inner(encoding: Encoding, key: str) -> Encoding:
    if encoding is None:
        return None
    inner = encoding.get(key)
    return inner if isinstance(inner, dict) else {}


def _described(encoding: Mapping[str, Any]) -> str:
    parts = [str(encoding[key])[:100] for key in ("type", "name") if key in encoding]
    return " ".join(parts) or "value that the event's schema lacks"


def _refusing(reason: str) -> Convert:
    return partial(_refuse, reason)


def _refuse(reason: str, _value: Any) -> Any:
    raise Unfit(reason)


def _float(plain: Convert, value: Any) -> Any:
    if isinstance(value, Decimal):
        value = float(value)
    return plain(_NO_NUMBERS.get(value, value) if isinstance(value, str) else value)


def _time(type_: ColumnType, unit: str | None, is_local: bool, no_number: str, value: Any) -> int:
    """Return a time as a number of the type's unit.

    Args:
        unit: of numbers; None: numbers are refused, with the reason `no_number`.
        is_local: whether a text has a `Z` also for a time without a zone.
    """
    if type(value) is int:
        if unit is None:
            raise Unfit(no_number)
        if unit == "ns" and value in _NS_LIMITS:  # what Java makes of a later time, such as infinity
            raise Unfit("is infinity, or a time that nanoseconds do not hold")
        return time_in_unit(value, UNIT_NS[unit], type_)
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise unfit(type_)
    if (match[3] is not None) is not type_.utc and not (is_local and match[3] == "Z"):
        other = f"timestamp[{type_.unit}]" if type_.utc else f"timestamp[{type_.unit}, UTC]"
        raise Unfit(f"is not of type {type_}: it has {'no' if type_.utc else 'a'} UTC offset, as in a {other}")
    try:
        time = datetime.fromisoformat(match[1] + (match[3] or "+00:00"))
    except ValueError:
        raise unfit(type_) from None
    since = time - EPOCH
    seconds = since.days * 86_400 + since.seconds
    return time_in_unit(seconds * UNIT_NS["s"] + int((match[2] or "").ljust(9, "0")), 1, type_)


def _date(type_: ColumnType, value: Any) -> int:
    if type(value) is int:
        return day_number(value)
    match = _DATE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise unfit(type_)
    try:
        return datetime.fromisoformat(match[1]).toordinal() - EPOCH.toordinal()
    except ValueError:
        raise unfit(type_) from None


def _bare_decimal(type_: ColumnType, mode: str | None, value: Any) -> Decimal:
    """Return the decimal of an event without a schema."""
    if isinstance(value, str):
        if mode is None:
            raise Unfit("is a text: set `decimal_handling_mode`")
        return _unscaled_decimal(type_, type_.scale, value) if mode == "precise" else _decimal_text(type_, value)
    return _any_scale_decimal(type_, value) if isinstance(value, dict) else _decimal_number(type_, value)


def _unscaled_decimal(type_: ColumnType, scale: int, value: Any) -> Decimal:
    return unscaled_decimal(type_, scale, _bytes(type_, value))


def _any_scale_decimal(type_: ColumnType, value: Any) -> Decimal:
    if not isinstance(value, dict) or type(value.get("scale")) is not int or abs(value["scale"]) > _MAX_SCALE:
        raise unfit(type_)
    return _unscaled_decimal(type_, value["scale"], value.get("value"))


def _decimal_text(type_: ColumnType, value: Any) -> Decimal:
    if not isinstance(value, str) or len(value) > 1_000 or not _NUMBER.fullmatch(value):
        raise unfit(type_)
    return exact_decimal(type_, Decimal(value))


def _decimal_number(type_: ColumnType, value: Any) -> Decimal:
    if type(value) is not int and not isinstance(value, Decimal):
        raise unfit(type_)
    return exact_decimal(type_, Decimal(value))


def _bytes(type_: ColumnType, value: Any) -> bytes:
    if not isinstance(value, str):
        raise unfit(type_)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Unfit("is not base64") from None
