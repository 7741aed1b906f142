"""Checks of operators over rows that replace or delete others: columns of the table, and the delete condition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from milepost.language import Path, Problem, did_you_mean
from milepost.language.sql import SqlProblem, check_condition
from milepost.operators.base.output_rows import OutputRows, nanosecond_problems


def shown_column_problems(
    key: Sequence[str], columns: Sequence[str] | None, name: str, rows: OutputRows, path: Path
) -> Iterator[Problem]:
    """Yield problems of `columns`, which names the columns of the table. None: all columns of the input."""
    if columns is None:
        return
    for column in key:
        if column not in columns:
            message = f"{column} is missing: the table needs all columns of the operator's `key`"
            yield Problem((*path, "columns"), message)
    for index, column in enumerate(columns):
        if rows.columns_known and column not in rows.columns:
            message = f"{name} has no column {column}; {did_you_mean(column, rows.columns)}"
            yield Problem((*path, "columns", index), message)


def condition_problems(delete_when: str | None, name: str, rows: OutputRows, path: Path) -> Iterator[Problem]:
    """Yield problems of `delete_when`, the condition under which a row deletes its key. None: no deletes."""
    if delete_when is None:
        return
    try:
        check_condition(delete_when, name, rows.columns if rows.columns_known else None)
    except SqlProblem as problem:
        yield Problem((*path, "delete_when"), str(problem))
    if rows.columns_known:
        yield from nanosecond_problems(name, rows, (*path, "inputs", 0))
