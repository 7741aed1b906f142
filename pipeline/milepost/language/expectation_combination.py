"""How to combine an expectation's results on partitions of the rows.

An epoch with too many rows for one process validates them per partition, in the tasks that read them. This module says
what each partition must report and how rows must be partitioned; `quality/partial_results.py` combines the
results. A test compares the table with Great Expectations.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from enum import Enum
from typing import Any


class Combination(Enum):
    """What each partition must report."""

    ROWS = "rows"
    """Number of failing rows; each row is judged by itself."""
    KEYS = "keys"
    """Number of failing rows; rows must be partitioned by value."""
    DISTINCT = "distinct"
    """Number of distinct values; rows must be partitioned by value."""
    COLUMNS = "columns"
    """Nothing: the schema decides."""
    COUNT = "count"
    """Number of rows."""
    ENDS = "ends"
    """Minimum or maximum."""
    SUM = "sum"
    MEAN = "mean"
    """Sum and number of values."""
    PRESENT = "present"
    """Number of values that are not null."""
    VALUES = "values"
    """The distinct values."""
    ALL = "all"
    """Cannot be combined: all rows must be in one process."""


COMBINATIONS: dict[str, Combination] = {
    "expect_column_distinct_values_to_be_in_set": Combination.VALUES,
    "expect_column_distinct_values_to_contain_set": Combination.VALUES,
    "expect_column_distinct_values_to_equal_set": Combination.VALUES,
    "expect_column_kl_divergence_to_be_less_than": Combination.ALL,
    "expect_column_max_to_be_between": Combination.ENDS,
    "expect_column_mean_to_be_between": Combination.MEAN,
    "expect_column_median_to_be_between": Combination.ALL,
    "expect_column_min_to_be_between": Combination.ENDS,
    "expect_column_most_common_value_to_be_in_set": Combination.ALL,
    "expect_column_proportion_of_non_null_values_to_be_between": Combination.PRESENT,
    "expect_column_proportion_of_unique_values_to_be_between": Combination.DISTINCT,
    "expect_column_quantile_values_to_be_between": Combination.ALL,
    "expect_column_stdev_to_be_between": Combination.ALL,
    "expect_column_sum_to_be_between": Combination.SUM,
    "expect_column_to_exist": Combination.COLUMNS,
    "expect_column_type_to_be": Combination.COLUMNS,
    "expect_column_unique_value_count_to_be_between": Combination.DISTINCT,
    "expect_column_value_z_scores_to_be_less_than": Combination.ALL,
    "expect_column_values_to_be_decreasing": Combination.ALL,
    "expect_column_values_to_be_increasing": Combination.ALL,
    "expect_column_values_to_be_unique": Combination.KEYS,
    "expect_column_values_to_not_be_outliers": Combination.ALL,
    "expect_compound_columns_to_be_unique": Combination.KEYS,
    "expect_query_results_to_match_comparison": Combination.ALL,
    "expect_table_column_count_to_be_between": Combination.COLUMNS,
    "expect_table_column_count_to_equal": Combination.COLUMNS,
    "expect_table_columns_to_match_ordered_list": Combination.COLUMNS,
    "expect_table_columns_to_match_set": Combination.COLUMNS,
    "expect_table_row_count_to_be_between": Combination.COUNT,
    "expect_table_row_count_to_equal": Combination.COUNT,
    "expect_table_row_count_to_equal_other_table": Combination.ALL,
}
"""Expectation -> its combination. All others are judged row by row (ROWS)."""

_WITH_CONDITION = (Combination.ROWS, Combination.KEYS, Combination.COUNT, Combination.ENDS, Combination.SUM)
"""Combinations in which the library evaluates each partition itself, and so can apply a `row_condition`."""

_ROW_WISE = (
    ast.Expression, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Name, ast.Constant, ast.List, ast.Tuple,
    ast.boolop, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context,
)  # fmt: skip


def combination_of(type_: str, arguments: Mapping[str, Any]) -> Combination:
    """Return the combination for an expectation; ALL if its `row_condition` may depend on other rows."""
    combination = COMBINATIONS.get(type_, Combination.ROWS)
    condition = arguments.get("row_condition")
    if condition is None or combination is Combination.COLUMNS:
        return combination
    is_row_wise = not isinstance(condition, str) or _is_row_wise(condition, arguments.get("condition_parser"))
    return combination if is_row_wise and combination in _WITH_CONDITION else Combination.ALL


def _is_row_wise(condition: str, parser: object) -> bool:
    """Return whether a condition depends on one row only.

    A pandas condition may call any function, and `index` is the position of the row among the others.
    """
    if str(parser).startswith("great_expectations"):
        return True
    try:
        nodes = list(ast.walk(ast.parse(condition.strip().replace("&", " and ").replace("|", " or "), mode="eval")))
    except (SyntaxError, ValueError, RecursionError):
        return False
    return all(isinstance(node, _ROW_WISE) and getattr(node, "id", "") != "index" for node in nodes)
