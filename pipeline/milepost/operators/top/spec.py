"""Spec of the `top` operator: keep the first rows of each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from milepost.language import ColumnName, ColumnType, Path, Problem
from milepost.operators.base.operator_spec import EventTimeRule, KeyedOperator, OrderColumns
from milepost.operators.base.origins import GROUPED, SORTED, RowsLineage, union
from milepost.operators.base.output_rows import (
    RETRACTIONS,
    UPDATES,
    OutputRows,
    append_problems,
    key_problems,
    scalar_problems,
)
from milepost.operators.base.state_bounds import StateBound, bound_per_key

MOST_ROWS = 1_000
"""Maximum `n`: a change of the first row of a key re-emits all ranks."""

_RANK = ColumnType("int32")


class TopOperator(KeyedOperator):
    """The first rows of each key, in a given order. Each epoch emits the ranks whose row changed.

    The output has the columns of the input and the rank. Its key is the operator's key and the rank, and it has no
    event time. Ties are broken by all columns, in the order of the input. Without `rank` the output is a retract stream
    without a key, which operators can read but no sink can publish.

    Attributes:
        inputs: name of one source or operator. Its rows may be append or updates.
        order_by: columns, each once; `{column: desc}` sorts descending. As in Spark, null is the smallest value and NaN
            the greatest number.
        n: number of rows per key, 1 to 1,000.
        rank: output column with the row's rank, from 1. null: no such column.
    """

    kind: Literal["top"]
    order_by: Annotated[OrderColumns, Field(min_length=1)]
    n: Annotated[int, Field(ge=1, le=MOST_ROWS)]
    rank: ColumnName | None = None

    @property
    def order_texts(self) -> list[str]:
        """Each column of `order_by` as text: ``views desc``, ``page asc``."""
        return [f"{name} {'desc' if descends else 'asc'}" for name, descends in self.order_by]

    event_time_rule: ClassVar[EventTimeRule] = EventTimeRule("none")
    lost_state: ClassVar[str] = "the rows that rank now: only later rows will rank"
    publishes_state: ClassVar[bool] = True

    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return the input's columns and the rank: updates by key and rank, without event time.

        Without a rank, the output is retractions.
        """
        (rows,), (name,), rank = inputs, self.inputs, self.rank
        problems = [] if rows.retracts else append_problems(self.kind, name, rows, path)
        problems += key_problems(self.key, name, rows, path)
        columns = [column for column, _ in self.order_by]
        problems += scalar_problems("an order", columns, name, rows, (*path, "order_by"))
        taken = [column for column in rows.columns if rank is not None and column.casefold() == rank.casefold()]
        if taken:
            message = f"{name} already has a column {taken[0]}; choose another name for the rank"
            problems.append(Problem((*path, "rank"), message))
        if problems:
            return problems
        if rank is None:
            return OutputRows(rows.columns, None, RETRACTIONS, (), columns_known=rows.columns_known, deletes=True)
        output_columns = rows.columns | {rank: _RANK} if rows.columns_known else {}
        # An input row that is deleted, or that an update moves to another key, may leave the last rank of its key
        # empty.
        deletes = rows.retracts and (rows.deletes or not set(self.key) <= set(rows.key))
        return OutputRows(
            output_columns, None, UPDATES, (*self.key, rank), columns_known=rows.columns_known, deletes=deletes
        )

    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        (rows,) = inputs
        order = rows.by(SORTED, (name for name, _ in self.order_by))
        deciding = union(rows.rows, rows.by(GROUPED, self.key), order)
        ranked = {} if self.rank is None else {self.rank: union(rows.by(GROUPED, self.key), order)}
        return RowsLineage({**rows.columns, **ranked} if rows.columns else {}, deciding, rows.any_column)

    def state_columns(self) -> list[tuple[str, list[str]]]:
        return [("", [*self.key, *(name for name, _ in self.order_by)])]

    def holds_event_times(self, event_time: str | None) -> bool:
        return any(name == event_time for name, _ in self.order_by)

    def signature(self, *, retracts: bool) -> dict[str, Any]:
        # State does not hold the rows below the n-th.
        return {"order_by": self.order_texts, "n": self.n}

    def state_bounds(self) -> tuple[StateBound, ...]:
        return (bound_per_key(f"at most {self.n:,} rows", self.key),)
