"""Output rows of the `top` operator."""

from __future__ import annotations

from milepost.jobspec.graph.rules.node import (
    RETRACTIONS,
    UPDATES,
    OutputRows,
    append_problems,
    key_problems,
    scalar_problems,
)
from milepost.jobspec.job.operators.top import TopOperator
from milepost.language import ColumnType, Path, Problem

RANK = ColumnType("int32")


def top_rows(operator: TopOperator, name: str, rows: OutputRows, path: Path) -> OutputRows | list[Problem]:
    """Return the input's columns and the rank: updates by key and rank, without event time.

    Without a rank, the output is retractions.
    """
    problems = [] if rows.retracts else append_problems(operator.kind, name, rows, path)
    problems += key_problems(operator.key, name, rows, path)
    columns = [column for column, _ in operator.order_by]
    problems += scalar_problems("an order", columns, name, rows, (*path, "order_by"))
    rank = operator.rank
    taken = [column for column in rows.columns if rank is not None and column.casefold() == rank.casefold()]
    if taken:
        message = f"{name} already has a column {taken[0]}; choose another name for the rank"
        problems.append(Problem((*path, "rank"), message))
    if problems:
        return problems
    if rank is None:
        return OutputRows(rows.columns, None, RETRACTIONS, (), columns_known=rows.columns_known, deletes=True)
    output_columns = rows.columns | {rank: RANK} if rows.columns_known else {}
    # An input row that is deleted, or that an update moves to another key, may leave the last rank of its key empty.
    deletes = rows.retracts and (rows.deletes or not set(operator.key) <= set(rows.key))
    return OutputRows(
        output_columns, None, UPDATES, (*operator.key, rank), columns_known=rows.columns_known, deletes=deletes
    )
