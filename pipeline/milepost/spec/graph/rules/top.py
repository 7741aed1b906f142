"""Top rules derive the rows that the first rows of each key are."""

from __future__ import annotations

from milepost.spec.graph.rules.node import (
    RETRACTIONS,
    UPDATES,
    OutputRows,
    append_problems,
    key_problems,
    scalar_problems,
)
from milepost.spec.job.operators.top import TopOperator
from milepost.spec.values.problems import Path, Problem
from milepost.spec.values.types import ColumnType

RANK = ColumnType("int32")


def top_rows(operator: TopOperator, name: str, rows: OutputRows, path: Path) -> OutputRows | list[Problem]:
    """Return the columns of the input and the rank: updates by the key and the rank, without an event time.

    Without a rank rows that come and are taken back.
    """
    problems = [] if rows.retracts else append_problems(operator.kind, name, rows, path)
    problems += key_problems(operator.key, name, rows, path)
    columns = [column for column, _ in operator.order_by]
    problems += scalar_problems("an order is", columns, name, rows, (*path, "order_by"))
    rank = operator.rank
    taken = [column for column in rows.columns if rank is not None and column.casefold() == rank.casefold()]
    if taken:
        message = f"{name} has a column {taken[0]}; call the rank otherwise"
        problems.append(Problem((*path, "rank"), message))
    if problems:
        return problems
    if rank is None:
        return OutputRows(rows.columns, None, RETRACTIONS, (), known=rows.known, deletes=True)
    shown = rows.columns | {rank: RANK} if rows.known else {}
    # A row that moves from one key to another, or goes, may end a rank.
    deletes = rows.retracts and (rows.deletes or not set(operator.key) <= set(rows.key))
    return OutputRows(shown, None, UPDATES, (*operator.key, rank), known=rows.known, deletes=deletes)
