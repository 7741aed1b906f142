"""Check and plan a SQL condition over one row.

A condition is wrapped in a SELECT, so that it gets the same checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from milepost.language.sql.semantics import check_semantics
from milepost.language.sql.sql import check_row_wise, quote, sql_plan
from milepost.language.sql.sql_parse import SqlProblem, parse_select
from milepost.language.types import ColumnType

_EXPECTED = "expected one condition over the columns of a row, as after WHERE"


def condition_sql(condition: str, input_name: str, columns: Sequence[str], qualify: str | None = None) -> str:
    """Return a condition for Spark, with its columns qualified.

    Args:
        columns, qualify: as for `sql_plan`.
    Raises:
        SqlProblem: it is not one expression over a row, or reads an unknown column.
    """
    select = _wrapped(condition, input_name)
    with _RelativePosition(condition):
        plan = sql_plan(select, input_name, columns, qualify)
    if plan.exploded is not None or plan.filter_sql is not None:
        raise SqlProblem(_EXPECTED)
    return plan.columns[0][1]


def check_condition(condition: str, input_name: str, columns: Mapping[str, ColumnType | None] | None) -> None:
    """Check a condition over one row; `columns` is None if they are not known. Raises SqlProblem."""
    if columns is not None:
        condition_sql(condition, input_name, list(columns))
    select = _wrapped(condition, input_name)
    with _RelativePosition(condition):
        if columns is None:
            check_row_wise(select, input_name)
        check_semantics(select, input_name, columns or {})


def _wrapped(condition: str, input_name: str) -> str:
    """Return a SELECT of the condition. Raises SqlProblem.

    The condition is on lines of its own, so that a comment at its end does not hide the rest of the SELECT.
    """
    select = f"SELECT\n{condition}\nAS is_true FROM {quote(input_name)}"
    with _RelativePosition(condition):
        parsed = parse_select(select)
    if len(parsed.tree.expressions) != 1:
        raise SqlProblem(_EXPECTED)
    return select


class _RelativePosition:
    """Converts the position of a problem in the SELECT to one in the condition, which begins on line 2."""

    def __init__(self, condition: str) -> None:
        self._lines = condition.count("\n") + 1

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if isinstance(problem, SqlProblem) and problem.line:
            line, column = problem.line, problem.column
            if not 1 < line <= self._lines + 1:  # outside the condition: it closes or opens something it should not
                raise SqlProblem(_EXPECTED) from None
            raise SqlProblem(problem.reason, line - 1, column) from None
