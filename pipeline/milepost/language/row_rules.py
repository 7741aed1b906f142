"""Expectations that judge each row by itself, so that a row can be dropped or quarantined.

The tasks evaluate these in Arrow, without Great Expectations. So only those arguments are accepted for which both give
the same answer for every row. A test compares them with the library.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from milepost.language.problems import not_available
from milepost.language.types import FLOATS, INTEGERS, ColumnType

_NULLS = ("expect_column_values_to_be_null", "expect_column_values_to_not_be_null")
_BETWEEN = "expect_column_values_to_be_between"
_SETS = ("expect_column_values_to_be_in_set", "expect_column_values_to_not_be_in_set")
_PATTERNS = ("expect_column_values_to_match_regex", "expect_column_values_to_not_match_regex")
_LENGTHS = ("expect_column_value_lengths_to_be_between", "expect_column_value_lengths_to_equal")

ROW_RULES = (_BETWEEN, *_SETS, *_NULLS, *_PATTERNS, *_LENGTHS)
"""The expectations that `on_fail: drop` and `on_fail: quarantine` support."""

Bound = float | date | datetime
"""A bound of a range, as the library reads it. A `datetime` is also a `date`."""

_AVAILABLE = "available are those on the bounds, sets, nulls, regexes and lengths of one column's values"
_INSTEAD = (
    "add a boolean column in a `sql` operator upstream, such as `ends > begins AS ordered`, and expect it in the set "
    "[true]"
)


def range_bound(value: object) -> Bound:
    """Return a bound as the library reads it: a number if it can be one, otherwise a time or a date.

    >>> range_bound("2"), range_bound("2024-06-01"), range_bound("2024-06-01T00:00:00")
    (2.0, datetime.date(2024, 6, 1), datetime.datetime(2024, 6, 1, 0, 0))

    Raises ValueError: it is none of them.
    """
    if isinstance(value, date):
        return value
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        text = str(value)
        return date.fromisoformat(text) if len(text) == len("2024-06-01") else datetime.fromisoformat(text)


def is_true(value: object) -> bool:
    """Return a boolean argument as the library reads it: `yes` and 1 are true."""
    return str(value).casefold() in ("1", "on", "t", "true", "y", "yes")


def row_rule_problem(
    type_: str, arguments: Mapping[str, Any], on_fail: str, column: ColumnType | None
) -> tuple[str | None, str] | None:
    """Return (argument at fault, message) if an expectation cannot drop or quarantine rows, otherwise None.

    Args:
        arguments: those that the library accepts.
        column: type of the column; None: not known yet.
    """
    if type_ not in ROW_RULES:
        refusal = f"{not_available(f'on_fail: {on_fail}')} for {type_}; {_AVAILABLE}"
        return "on_fail", f"{refusal}; for other rules on single rows, {_INSTEAD}"
    for name in ("row_condition", "condition_parser"):
        if name in arguments:
            return name, f"{not_available(name)} with `on_fail: {on_fail}`; {_INSTEAD}"
    if (problem := _value_problem(type_, arguments)) is not None or column is None:
        return problem
    name, kinds = _accepted_types(type_, arguments)
    if kinds is None or _type_kind(column) in kinds:
        return None
    return name, f"the column is {column}; with `on_fail: {on_fail}`, {type_} accepts {_NAMES[name]}"


_RANGE_TYPES = (
    "number bounds for numbers, dates for dates, and for timestamps times such as 2024-06-01T00:00:00, with Z if the "
    "column has a time zone"
)
_NAMES = {
    "column": "columns of type string",
    "value_set": "whole numbers for whole numbers and decimals, numbers for floats, strings for strings and true or "
    "false for bools",
    "min_value": _RANGE_TYPES,
    "max_value": _RANGE_TYPES,
}


def _value_problem(type_: str, arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    if type_ in _PATTERNS:
        if arguments.get("regex") is None:
            return "type", f"{type_} needs `regex`"
        try:
            re.compile(str(arguments["regex"]))
        except re.error as error:
            return "regex", f"it is not a regular expression of Python: {error}"
    if type_ == _BETWEEN:
        given = {name: arguments[name] for name in ("min_value", "max_value") if arguments.get(name) is not None}
        bounds = {name: range_bound(value) for name, value in given.items()}
        if len({_bound_kind(bound) for bound in bounds.values()}) > 1:
            return "max_value", "`min_value` and `max_value` have different types"
        low, high = (bounds.get(name) for name in ("min_value", "max_value"))
        if low is not None and high is not None and low > high:  # type: ignore[operator]  # of one type
            return "max_value", f"{arguments['max_value']} is before `min_value`, which is {arguments['min_value']}"
        for name, bound in bounds.items():
            if isinstance(bound, float) and math.isnan(bound):
                return name, "expected a number, a date or a time, got NaN, which no value equals or exceeds"
    return None


def _accepted_types(type_: str, arguments: Mapping[str, Any]) -> tuple[str, tuple[str, ...] | None]:
    """Return (argument, kinds of columns that fit its value). None: columns of any type."""
    if type_ in _NULLS:
        return "column", None
    if type_ == _BETWEEN:
        bound = next(arguments[name] for name in ("min_value", "max_value") if arguments.get(name) is not None)
        return "min_value" if arguments.get("min_value") is not None else "max_value", _bound_kinds(bound)
    if type_ in _SETS:
        return "value_set", _set_kinds([value for value in arguments["value_set"] if value is not None])
    return "column", ("string",)


def _bound_kinds(value: object) -> tuple[str, ...]:
    kind = _bound_kind(range_bound(value))
    return (*INTEGERS, *FLOATS, "decimal") if kind == "number" else (kind,)


def _bound_kind(bound: Bound) -> str:
    if isinstance(bound, float):
        return "number"
    if isinstance(bound, datetime):
        return "timestamp" if bound.tzinfo is None else "timestamp with time zone"
    return "date"


def _set_kinds(values: list[Any]) -> tuple[str, ...]:
    kinds = {type(value) for value in values}
    if not kinds:
        return (*INTEGERS, *FLOATS, "decimal", "string", "bool")
    if kinds == {str}:
        return ("string",)
    if kinds == {bool}:
        return ("bool",)
    return (*INTEGERS, *FLOATS, "decimal") if kinds == {int} else FLOATS if kinds <= {int, float} else ()


def _type_kind(type_: ColumnType) -> str:
    return "timestamp with time zone" if type_.kind == "timestamp" and type_.utc else type_.kind
