"""Guess which JSON lines the parser will reject, using the standard library.

The guess is only a hint. Bisection needs a dozen parser calls to find one bad line, and a correct guess needs one.
Bisection still finds a bad line that the guess misses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from milepost.language import ColumnType

_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


class ExpectedValues:
    """The JSON types that the parser accepts for the declared columns.

    Args:
        columns: declared columns.
        event_time: event-time column, which must not be null.
    """

    def __init__(self, columns: Mapping[str, ColumnType], event_time: str | None) -> None:
        self._checks = [(name, _check_of(type_), name != event_time) for name, type_ in columns.items()]

    def looks_bad(self, text: str) -> bool:
        """Return whether the parser will probably reject a line."""
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            return True
        return not isinstance(fields, dict) or self.first_mismatch(fields) < len(self._checks)

    def first_mismatch(self, fields: Mapping[str, Any]) -> int:
        """Return the index of the first column with a value of the wrong type, or the number of columns."""
        for at, (name, looks_right, may_be_null) in enumerate(self._checks):
            value = fields.get(name)
            if not (may_be_null if value is None else looks_right(value)):
                return at
        return len(self._checks)


def _check_of(type_: ColumnType) -> Callable[[Any], bool]:
    if type_.kind in _BITS:
        return partial(_is_whole, 1 << _BITS[type_.kind])
    if type_.kind in ("float32", "float64"):
        return partial(_is_one_of, (int, float))
    if type_.kind == "bool":
        return partial(_is_one_of, (bool,))
    if type_.kind == "string":
        return partial(_is_one_of, (str,))
    if type_.kind == "timestamp":
        return partial(_is_time, type_.utc)
    return _anything


def _is_one_of(types: tuple[type, ...], value: Any) -> bool:
    return type(value) in types


def _is_whole(bound: int, value: Any) -> bool:
    return type(value) is int and -bound <= value < bound


def _is_time(utc: bool, value: Any) -> bool:
    if type(value) is not str:
        return False
    try:
        return (datetime.fromisoformat(value).tzinfo is not None) is utc
    except ValueError:
        return False


def _anything(value: Any) -> bool:
    return True
