"""Convert decoded values to a declared type exactly, or refuse them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeAlias

from milepost.language import ColumnType
from milepost.language.times import EPOCH

Convert: TypeAlias = Callable[[Any], Any]
"""Converts a value to one that Arrow stores in a column of the declared type. Never called with None."""

UNIT_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_LARGEST = {"int8": 1 << 7, "int16": 1 << 15, "int32": 1 << 31, "int64": 1 << 63}
_MAX_DECIMAL_BYTES = 128
_LARGEST_FLOAT32 = 3.4028235677973366e38
_FIRST_S, _LAST_S = ((datetime(*day, tzinfo=EPOCH.tzinfo) - EPOCH).days * 86_400 for day in ((1, 1, 1), (9999, 12, 31)))
FIRST_DAY, LAST_DAY = _FIRST_S // 86_400, _LAST_S // 86_400


class Unfit(ValueError):
    """A value that a column cannot hold. The message is a clause without the value."""


def plain_converter(type_: ColumnType) -> Convert | None:
    """Return the converter for a bool, a number that is no decimal, or a text; None for other types."""
    if type_.kind == "bool":
        return lambda value: _of_class(value, bool, type_)
    if type_.kind == "string":
        return lambda value: _of_class(value, str, type_)
    if type_.kind in _LARGEST:
        return lambda value: _integer(value, type_)
    if type_.kind in ("float32", "float64"):
        return lambda value: _float(value, type_)
    return None


def list_converter(type_: ColumnType, element: Convert) -> Convert:
    """Return the converter for a list."""

    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise unfit(type_)
        return [None if item is None else element(item) for item in value]

    return convert


def struct_converter(type_: ColumnType, fields: Mapping[str, Convert]) -> Convert:
    """Return the converter for a struct. A field that the value lacks is null."""

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise unfit(type_)
        return {
            name: None if (item := value.get(name)) is None else convert_field(item)
            for name, convert_field in fields.items()
        }

    return convert


def time_in_unit(number: int, unit_ns: int, type_: ColumnType) -> int:
    """Return a time since 1970 as a number of the type's unit.

    A timestamp[ms] has no 1,500 us: that is 1.5 ms.

    Args:
        number: of units of `unit_ns` nanoseconds.
    Raises:
        Unfit: the type's unit has no such time, or it is outside the years 1 to 9999. Postgres's infinity is.
    """
    nanoseconds = number * unit_ns
    if not _FIRST_S * UNIT_NS["s"] <= nanoseconds < (_LAST_S + 86_400) * UNIT_NS["s"]:
        raise Unfit("is outside the years 1 to 9999")
    value, rest = divmod(nanoseconds, UNIT_NS[type_.unit])
    if rest:
        raise Unfit(f"has more digits than a {type_} holds")
    if not -(1 << 63) <= value < 1 << 63:
        raise Unfit(f"is outside the range of a {type_}")
    return value


def day_number(days: int) -> int:
    """Return days since 1970. Raises Unfit: outside the years 1 to 9999."""
    if not FIRST_DAY <= days <= LAST_DAY:
        raise Unfit("is outside the years 1 to 9999")
    return days


def exact_decimal(type_: ColumnType, value: Decimal) -> Decimal:
    """Return a decimal that the type holds without rounding. Raises Unfit."""
    if not value.is_finite():
        raise unfit(type_)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if not any(digits):
        return Decimal(0)
    if len(digits) + exponent > type_.precision - type_.scale:
        raise unfit(type_)
    # 1.500 has the digits 1500 and the exponent -3; a decimal(3,1) drops two, which are zeros.
    dropped = -exponent - type_.scale
    if dropped > 0:
        if any(digits[len(digits) - dropped :]) if dropped < len(digits) else True:
            raise Unfit(f"has more digits than a {type_} holds")
        digits, exponent = digits[: len(digits) - dropped], -type_.scale
    return Decimal((sign, digits, exponent))


def unscaled_decimal(type_: ColumnType, scale: int, content: bytes) -> Decimal:
    """Return the decimal of a big-endian number: the bytes 04 d2 with scale 2 are 12.34. Raises Unfit."""
    if len(content) > _MAX_DECIMAL_BYTES:
        raise unfit(type_)
    return exact_decimal(type_, Decimal(f"{int.from_bytes(content, 'big', signed=True)}E{-scale}"))


def unfit(type_: ColumnType) -> Unfit:
    """Return the error for a value of another type."""
    return Unfit(f"is not of type {type_}")


def _of_class(value: Any, class_: type, type_: ColumnType) -> Any:
    if type(value) is not class_:
        raise unfit(type_)
    return value


def _integer(value: Any, type_: ColumnType) -> int:
    bound = _LARGEST[type_.kind]
    if type(value) is not int or not -bound <= value < bound:
        raise unfit(type_)
    return value


def _float(value: Any, type_: ColumnType) -> float:
    """Return the nearest float. An integer must have one that equals it."""
    if type(value) is int:
        try:
            number = float(value)
        except OverflowError:
            raise unfit(type_) from None
        if number != value:
            raise Unfit(f"has more digits than a {type_} holds")
    elif type(value) is float:
        number = value
    else:
        raise unfit(type_)
    if type_.kind == "float32" and math.isfinite(number) and abs(number) >= _LARGEST_FLOAT32:
        raise Unfit(f"is outside the range of a {type_}")
    return number
