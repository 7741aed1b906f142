"""Expectations of the pinned Great Expectations and their arguments. `!` marks required ones.

Importing the library takes seconds, so `lint` and DAG parsing use this table. A test compares it with the library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from milepost.language.expectation_values import value_problem
from milepost.language.names import did_you_mean
from milepost.language.suggestions import nearest

SET_BY_THE_GATE = frozenset({"catch_exceptions", "id", "meta", "rendered_content", "result_format"})
COMMON = frozenset({"batch_id", "description", "notes", "severity", "windows"})
"""Arguments of every expectation, in addition to those that the gate sets."""

_ROWS = "row_condition condition_parser"
_COLUMN = f"column! {_ROWS}"
_VALUES = f"{_COLUMN} mostly"
_PAIR = f"column_A! column_B! {_ROWS} mostly ignore_row_if"
_LIST = f"column_list! {_ROWS} mostly ignore_row_if"
_RANGE = "min_value max_value strict_min strict_max"

ARGUMENTS: dict[str, str] = {
    "expect_column_distinct_values_to_be_in_set": f"{_COLUMN} value_set!",
    "expect_column_distinct_values_to_contain_set": f"{_COLUMN} value_set!",
    "expect_column_distinct_values_to_equal_set": f"{_COLUMN} value_set!",
    "expect_column_kl_divergence_to_be_less_than": (
        f"{_COLUMN} partition_object threshold internal_weight_holdout tail_weight_holdout bucketize_data "
        "min_value max_value"
    ),
    "expect_column_max_to_be_between": f"{_COLUMN} {_RANGE}",
    "expect_column_mean_to_be_between": f"{_COLUMN} {_RANGE}",
    "expect_column_median_to_be_between": f"{_COLUMN} {_RANGE}",
    "expect_column_min_to_be_between": f"{_COLUMN} {_RANGE}",
    "expect_column_most_common_value_to_be_in_set": f"{_COLUMN} value_set! ties_okay",
    "expect_column_pair_values_a_to_be_greater_than_b": f"{_PAIR} or_equal",
    "expect_column_pair_values_to_be_equal": _PAIR,
    "expect_column_pair_values_to_be_in_set": f"{_PAIR} value_pairs_set!",
    "expect_column_proportion_of_non_null_values_to_be_between": f"{_COLUMN} {_RANGE} library_metadata",
    "expect_column_proportion_of_unique_values_to_be_between": f"{_COLUMN} {_RANGE} library_metadata",
    "expect_column_quantile_values_to_be_between": f"{_COLUMN} quantile_ranges! allow_relative_error",
    "expect_column_stdev_to_be_between": f"{_COLUMN} {_RANGE}",
    "expect_column_sum_to_be_between": f"{_COLUMN} {_RANGE}",
    "expect_column_to_exist": "column! column_index",
    "expect_column_type_to_be": "column! type_!",
    "expect_column_unique_value_count_to_be_between": f"{_COLUMN} {_RANGE} library_metadata",
    "expect_column_value_lengths_to_be_between": f"{_VALUES} {_RANGE}",
    "expect_column_value_lengths_to_equal": f"{_VALUES} value!",
    "expect_column_value_z_scores_to_be_less_than": f"{_VALUES} threshold! double_sided!",
    "expect_column_values_to_be_between": f"{_VALUES} {_RANGE}",
    "expect_column_values_to_be_dateutil_parseable": f"{_VALUES} library_metadata",
    "expect_column_values_to_be_decreasing": f"{_VALUES} strictly library_metadata",
    "expect_column_values_to_be_in_set": f"{_VALUES} value_set!",
    "expect_column_values_to_be_in_type_list": f"{_VALUES} type_list",
    "expect_column_values_to_be_increasing": f"{_VALUES} strictly library_metadata",
    "expect_column_values_to_be_json_parseable": f"{_VALUES} library_metadata",
    "expect_column_values_to_be_null": _VALUES,
    "expect_column_values_to_be_of_type": f"{_VALUES} type_!",
    "expect_column_values_to_be_unique": _VALUES,
    "expect_column_values_to_match_json_schema": f"{_VALUES} json_schema! library_metadata",
    "expect_column_values_to_match_like_pattern": f"{_VALUES} like_pattern! escape",
    "expect_column_values_to_match_like_pattern_list": f"{_VALUES} like_pattern_list! match_on escape",
    "expect_column_values_to_match_regex": f"{_VALUES} regex",
    "expect_column_values_to_match_regex_list": f"{_VALUES} regex_list! match_on",
    "expect_column_values_to_match_strftime_format": f"{_VALUES} strftime_format!",
    "expect_column_values_to_not_be_in_set": f"{_VALUES} value_set!",
    "expect_column_values_to_not_be_null": _VALUES,
    "expect_column_values_to_not_be_outliers": f"{_VALUES} method multiplier",
    "expect_column_values_to_not_match_like_pattern": f"{_VALUES} like_pattern! escape",
    "expect_column_values_to_not_match_like_pattern_list": f"{_VALUES} like_pattern_list! escape",
    "expect_column_values_to_not_match_regex": f"{_VALUES} regex!",
    "expect_column_values_to_not_match_regex_list": f"{_VALUES} regex_list!",
    "expect_compound_columns_to_be_unique": _LIST,
    "expect_multicolumn_sum_to_equal": f"{_LIST} sum_total!",
    "expect_multicolumn_values_to_be_equal": _LIST,
    "expect_query_results_to_match_comparison": "base_query! comparison_data_source_name! comparison_query! mostly",
    "expect_select_column_values_to_be_unique_within_record": _LIST,
    "expect_table_column_count_to_be_between": "min_value max_value",
    "expect_table_column_count_to_equal": "value!",
    "expect_table_columns_to_match_ordered_list": "column_list",
    "expect_table_columns_to_match_set": "column_set exact_match",
    "expect_table_row_count_to_be_between": f"{_ROWS} {_RANGE}",
    "expect_table_row_count_to_equal": f"{_ROWS} value!",
    "expect_table_row_count_to_equal_other_table": f"{_ROWS} other_table_name!",
}

_WITH_A_BOUND = ("expect_column_value_lengths_to_be_between", "expect_column_values_to_be_between")
"""Expectations that need `min_value`, `max_value` or both."""


def expectation_problem(type_: str, arguments: Mapping[str, object]) -> tuple[str | None, str] | None:
    """Return (argument at fault, message), or None if the library accepts the expectation.

    The argument is None when the expectation itself is at fault.
    """
    if type_ not in ARGUMENTS:
        return None, f"Great Expectations has no {type_}{_guess(type_, ARGUMENTS)}"
    known = ARGUMENTS[type_].split()
    names = [name.removesuffix("!") for name in known]
    given = set(arguments)
    for name in sorted(given - COMMON - set(names)):
        if name in SET_BY_THE_GATE:
            return name, f"`{name}` is set by the quality gate; remove it"
        return name, f"{type_} has no argument `{name}`; {did_you_mean(name, names)}"
    missing = [name.removesuffix("!") for name in known if name.endswith("!") and name.removesuffix("!") not in given]
    if missing:
        return None, f"{type_} needs `{missing[0]}`"
    for name, value in arguments.items():
        if (problem := value_problem(type_, name, value)) is not None:
            return name, problem
    least, most = arguments.get("min_value"), arguments.get("max_value")
    if isinstance(least, (int, float)) and isinstance(most, (int, float)) and least > most:
        return "max_value", f"{most} is less than `min_value`, which is {least}"
    if type_ in _WITH_A_BOUND and least is None and most is None:
        return None, f"{type_} needs `min_value`, `max_value` or both"
    return None


def _guess(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    return f'; did you mean "{near}"?' if near else ""
