"""Check the values of expectation arguments as the pinned Great Expectations would.

It is stricter where the library silently changes a value (2.5 as a whole number becomes 2), and where the library
accepts what the gate cannot resolve (a mapping with a parameter). A test compares every argument with the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from milepost.language.problems import shortened

_BOOLEANS = frozenset(["0", "off", "f", "false", "n", "no", "1", "on", "t", "true", "y", "yes"])


@dataclass(frozen=True, slots=True)
class _Kind:
    """The values that an argument accepts.

    Attributes:
        description: completes "expected …". accepts: whether it accepts a value other than null.
    """

    description: str
    accepts: Callable[[Any], bool]


def _number(value: Any) -> float | None:
    """Return the number that the library converts a value to, or None."""
    if not isinstance(value, (bool, int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _is_number(value: Any) -> bool:
    return _number(value) is not None


def _is_whole(value: Any) -> bool:
    number = _number(value)
    return number is not None and math.isfinite(number) and number == math.floor(number) and "." not in str(value)


def _is_time(value: Any) -> bool:
    if isinstance(value, (date, datetime)):
        return True
    try:
        return isinstance(value, str) and datetime.fromisoformat(value) is not None
    except ValueError:
        return False


def _is_text(value: Any) -> bool:
    return isinstance(value, (str, int, float))


def _is_boolean(value: Any) -> bool:
    return str(value).casefold() in _BOOLEANS and isinstance(value, (bool, int, str))


def _is_format(value: Any) -> bool:
    try:
        datetime.strptime(datetime(2020, 1, 1, tzinfo=UTC).strftime(str(value)), str(value)).replace(tzinfo=UTC)
    except ValueError:
        return False
    return _is_text(value)


def _at_least(count: int, item: Callable[[Any], bool] = lambda _: True) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and len(value) >= count and all(map(item, value))


def _choice(*names: str) -> _Kind:
    return _Kind(f"one of {', '.join(names)}", lambda value: value in names)


_NUMBER = _Kind("a number", _is_number)
_WHOLE = _Kind("a whole number", _is_whole)
_BOUND = _Kind("a number, a date or a time", lambda value: _is_number(value) or _is_time(value))
_SHARE = _Kind("a number from 0 to 1", lambda value: (number := _number(value)) is not None and 0 <= number <= 1)
_FACTOR = _Kind("a number of 0 or more", lambda value: (number := _number(value)) is not None and number >= 0)
_TEXT = _Kind("a string", _is_text)
_NAME = _Kind("the name of a column", lambda value: isinstance(value, str) and value != "")
_BOOLEAN = _Kind("true or false", _is_boolean)
_LIST = _Kind("a list", lambda value: isinstance(value, list))
_TEXTS = _Kind("a list of strings", _at_least(1, _is_text))
_MAPPING = _Kind("a mapping", lambda value: isinstance(value, dict))

_KINDS = {
    **dict.fromkeys(("column", "column_A", "column_B"), _NAME),
    **dict.fromkeys(("min_value", "max_value"), _BOUND),
    **dict.fromkeys(("threshold", "sum_total"), _NUMBER),
    **dict.fromkeys(("mostly", "internal_weight_holdout", "tail_weight_holdout"), _SHARE),
    **dict.fromkeys(("value", "column_index"), _WHOLE),
    **dict.fromkeys(
        ("strict_min", "strict_max", "ties_okay", "or_equal", "double_sided", "strictly", "exact_match",
         "bucketize_data"), _BOOLEAN
    ),
    **dict.fromkeys(
        ("row_condition", "type_", "like_pattern", "regex", "allow_relative_error", "base_query", "comparison_query",
         "comparison_data_source_name", "other_table_name"), _TEXT
    ),
    **dict.fromkeys(("regex_list", "like_pattern_list"), _TEXTS),
    **dict.fromkeys(("partition_object", "json_schema", "library_metadata", "quantile_ranges"), _MAPPING),
    **dict.fromkeys(("value_set", "column_set"), _LIST),
    "type_list": _Kind("a list of strings", _at_least(0, _is_text)),
    "value_pairs_set": _Kind("a list of pairs", _at_least(0, lambda item: isinstance(item, list) and len(item) == 2)),
    "column_list": _Kind("a list of two or more columns", _at_least(2, lambda name: isinstance(name, str))),
    "multiplier": _FACTOR,
    "escape": _Kind("a single character", lambda value: _is_text(value) and len(str(value)) == 1),
    "strftime_format": _Kind("a strftime format", _is_format),
    "condition_parser": _choice("great_expectations", "great_expectations__experimental__", "pandas", "spark"),
    "match_on": _choice("any", "all"),
    "method": _choice("iqr", "std"),
    "ignore_row_if": _choice("all_values_are_missing", "any_value_is_missing", "never"),
}  # fmt: skip
"""Argument -> the values it accepts, in all expectations except those of `_KINDS_BY_EXPECTATION`."""

_PAIR_ROWS = _choice("both_values_are_missing", "either_value_is_missing", "neither")
_KINDS_BY_EXPECTATION = {
    ("expect_column_value_lengths_to_equal", "value"): _NUMBER,
    ("expect_column_distinct_values_to_be_in_set", "value_set"): _Kind("a list of one or more values", _at_least(1)),
    ("expect_select_column_values_to_be_unique_within_record", "ignore_row_if"): _TEXT,
    ("expect_table_columns_to_match_ordered_list", "column_list"): _LIST,
    **{(f"expect_column_pair_values_{name}", "ignore_row_if"): _PAIR_ROWS
       for name in ("a_to_be_greater_than_b", "to_be_equal", "to_be_in_set")},
    **{(f"expect_column_{name}_to_be_between", bound): kind
       for bound in ("min_value", "max_value")
       for name, kind in (("proportion_of_non_null_values", _NUMBER), ("proportion_of_unique_values", _NUMBER),
                          ("stdev", _NUMBER), ("unique_value_count", _WHOLE), ("value_lengths", _WHOLE))},
    **{("expect_table_row_count_to_be_between", bound): _WHOLE for bound in ("min_value", "max_value")},
}  # fmt: skip

_NULLABLE = frozenset(
    """row_condition condition_parser partition_object internal_weight_holdout tail_weight_holdout min_value max_value
    ties_okay or_equal column_index strictly type_list escape column_set exact_match""".split()  # noqa: SIM905
)
"""Arguments that may be null, which means absent, in every expectation."""
_NULLABLE_BY_EXPECTATION = {
    ("expect_column_kl_divergence_to_be_less_than", "threshold"),
    ("expect_table_columns_to_match_ordered_list", "column_list"),
}


def value_problem(type_: str, argument: str, value: object) -> str | None:
    """Return the fault in the value of an expectation's argument, or None if the library accepts it."""
    kind = _KINDS_BY_EXPECTATION.get((type_, argument)) or _KINDS.get(argument)
    if kind is None:  # an argument of every expectation, such as `description`
        return None
    if value is None:
        is_valid = argument in _NULLABLE or (type_, argument) in _NULLABLE_BY_EXPECTATION
    else:
        is_valid = kind.accepts(value)
    if is_valid:
        return None
    return f"expected {kind.description}, got {'null' if value is None else shortened(repr(value))}"
