"""Output rows of the `latest` operator."""

from __future__ import annotations

from collections.abc import Iterator

from milepost.jobspec.graph.rules.node import (
    UPDATES,
    OutputRows,
    append_problems,
    event_time_problems,
    key_problems,
    nanosecond_problems,
    scalar_problems,
)
from milepost.jobspec.job.operators.latest import LatestOperator
from milepost.language import Path, Problem, did_you_mean
from milepost.language.sql import SqlProblem, check_condition


def latest_rows(operator: LatestOperator, name: str, rows: OutputRows, path: Path) -> OutputRows | list[Problem]:
    """Return the columns of the table: updates by key, without event time, with deletes if `delete_when` is given."""
    problems = append_problems(operator.kind, name, rows, path) + key_problems(operator.key, name, rows, path)
    problems += scalar_problems("a sequence", operator.sequence_by, name, rows, (*path, "sequence_by"))
    problems += _column_problems(operator, name, rows, path)
    problems += _delete_problems(operator, name, rows, path)
    if problems:
        return problems
    shown = operator.columns or tuple(rows.columns)
    columns = {column: rows.columns[column] for column in shown} if rows.columns_known else {}
    return OutputRows(
        columns, None, UPDATES, operator.key, columns_known=rows.columns_known, deletes=operator.delete_when is not None
    )


def _column_problems(operator: LatestOperator, name: str, rows: OutputRows, path: Path) -> Iterator[Problem]:
    if operator.columns is None:
        return
    for column in operator.key:
        if column not in operator.columns:
            message = f"{column} is missing: the table needs all columns of the operator's `key`"
            yield Problem((*path, "columns"), message)
    for index, column in enumerate(operator.columns):
        if rows.columns_known and column not in rows.columns:
            message = f"{name} has no column {column}; {did_you_mean(column, rows.columns)}"
            yield Problem((*path, "columns", index), message)


def _delete_problems(operator: LatestOperator, name: str, rows: OutputRows, path: Path) -> Iterator[Problem]:
    if operator.tombstone_ttl is not None:
        if operator.delete_when is None:
            message = "`tombstone_ttl` needs `delete_when`: without it no key is deleted"
            yield Problem((*path, "tombstone_ttl"), message)
        yield from event_time_problems("a tombstone_ttl", name, rows, path)
    if operator.delete_when is not None:
        try:
            check_condition(operator.delete_when, name, rows.columns if rows.columns_known else None)
        except SqlProblem as problem:
            yield Problem((*path, "delete_when"), str(problem))
        if rows.columns_known:
            yield from nanosecond_problems(name, rows, (*path, "inputs", 0))
