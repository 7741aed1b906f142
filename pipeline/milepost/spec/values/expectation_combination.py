"""A combination says how the answer to an expectation follows from answers about parts of the rows.

Rows that no process may hold are judged in parts, in the tasks that read them. What a part must say, and how parts must
be cut, is here; what is made of it is in `dataflow/quality/partial_results.py`. A test compares the list with the
library's.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from enum import Enum
from typing import Any


class Combination(Enum):
    """What must be known of each part.

    ROWS: how many of its rows are refused, each looked at by itself. KEYS: the same, where all rows of equal values are
    in one part. DISTINCT: how many values it has, parts cut so as well. COLUMNS: nothing, the columns decide. COUNT:
    how many rows. ENDS: its least or greatest value. SUM: its sum. MEAN: sum and number of its values. PRESENT: number
    of its values. VALUES: the values that occur. ALL: nothing helps but all rows in one place.
    """

    ROWS = "rows"
    KEYS = "keys"
    DISTINCT = "distinct"
    COLUMNS = "columns"
    COUNT = "count"
    ENDS = "ends"
    SUM = "sum"
    MEAN = "mean"
    PRESENT = "present"
    VALUES = "values"
    ALL = "all"


OTHERS: dict[str, Combination] = {
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
"""Expectations that do not look at each row by itself."""

_WITH_CONDITION = (Combination.ROWS, Combination.KEYS, Combination.COUNT, Combination.ENDS, Combination.SUM)
"""What the library answers of a part itself, and so of those of its rows that a condition leaves."""

_ROW_WISE = (
    ast.Expression, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Name, ast.Constant, ast.List, ast.Tuple,
    ast.boolop, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context,
)  # fmt: skip


def combination_of(type_: str, arguments: Mapping[str, Any]) -> Combination:
    """Return what must be known of parts; ALL where a condition on rows may look beyond a row."""
    how = OTHERS.get(type_, Combination.ROWS)
    condition = arguments.get("row_condition")
    if condition is None or how is Combination.COLUMNS:
        return how
    by_row = not isinstance(condition, str) or _is_row_wise(condition, arguments.get("condition_parser"))
    return how if by_row and how in _WITH_CONDITION else Combination.ALL


def _is_row_wise(condition: str, parser: object) -> bool:
    """Return whether a condition is about one row: pandas' may call anything, and the index is a place."""
    if str(parser).startswith("great_expectations"):
        return True
    try:
        nodes = list(ast.walk(ast.parse(condition.strip().replace("&", " and ").replace("|", " or "), mode="eval")))
    except (SyntaxError, ValueError, RecursionError):
        return False
    return all(isinstance(node, _ROW_WISE) and getattr(node, "id", "") != "index" for node in nodes)
