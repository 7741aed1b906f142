"""Spec of the `top` operator: keep the first rows of each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from milepost.language import ColumnName, ColumnType, Path, Problem
from milepost.operators.base.operator_spec import (
    AnyColumns,
    EventTimeRule,
    KeyedOperator,
    OrderColumns,
    order_texts,
    ordered_columns,
)
from milepost.operators.base.origins import GROUPED, SORTED, RowsLineage, union
from milepost.operators.base.output_rows import (
    RETRACTIONS,
    UPDATES,
    Columns,
    OutputRows,
    append_problems,
    key_problems,
    scalar_problems,
)
from milepost.operators.base.row_trace import RowTrace, same_names
from milepost.operators.base.state_bounds import StateBound, bound_per_key

MOST_ROWS = 1_000
"""Maximum `n`: a change of the first row of a key re-emits all ranks."""

MOST_TIES = 10_000
"""Default of `max_ties`."""

_RANK = ColumnType("int32")


class TopOperator(KeyedOperator):
    """The first rows of each key, in a given order. Each epoch emits the ranks with a changed row.

    The output has the columns of the input and the rank. Its key is the operator's key and the rank, and it has no
    event time. Rows that tie are ordered by all columns, in the order of the input. Without `rank`, the key of one row
    per key (`n: 1`) is the operator's key. Otherwise the output is a retract stream without a key, which operators can
    read but no sink can publish; so it is with `ties`.

    Attributes:
        inputs: name of one source or operator. Its rows may be append or updates.
        key: key columns, each once. []: the first rows of all, in one task.
        order_by: columns, each once; `{column: desc}` sorts descending. As in Spark, null is the smallest value and NaN
            the greatest number.
        n: number of rows per key, 1 to 1,000. With `ties`, the greatest rank.
        rank: output column with the row's rank, from 1. null: no such column.
        ties: whether rows that are equal in `order_by` have one rank. false: each row has its own, as `row_number()`.
            true: the next rank follows the number of rows before it, as `rank()`. dense: it is the next number, as
            `dense_rank()`.
        max_ties: with `ties`, the number of rows of one key above which the epoch fails. null: 10,000.
    """

    kind: Literal["top"]
    key: AnyColumns
    order_by: Annotated[OrderColumns, Field(min_length=1)]
    n: Annotated[int, Field(ge=1, le=MOST_ROWS)]
    rank: ColumnName | None = None
    ties: Literal[False, True, "dense"] = False
    max_ties: Annotated[int, Field(ge=1)] | None = None

    @property
    def is_keyed(self) -> bool:
        """Whether each row of the output has a key of its own: the rank, or the key of its only row."""
        return not self.ties and (self.rank is not None or (self.n == 1 and bool(self.key)))

    event_time_rule: ClassVar[EventTimeRule] = EventTimeRule("none")
    lost_state: ClassVar[str] = "the rows that rank now: only later rows will rank"
    publishes_state: ClassVar[bool] = True

    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return the input's columns and the rank: updates by key and rank, without event time.

        Without a rank, the output is retractions, or updates by key if there is one row per key. With ties it is
        retractions.
        """
        (rows,), (name,), rank = inputs, self.inputs, self.rank
        problems = [] if rows.retracts else append_problems(self.kind, name, rows, path)
        problems += key_problems(self.key, name, rows, path)
        columns = ordered_columns(self.order_by)
        problems += scalar_problems("an order", columns, name, rows, (*path, "order_by"))
        taken = [column for column in rows.columns if rank is not None and column.casefold() == rank.casefold()]
        if taken:
            message = f"{name} already has a column {taken[0]}; choose another name for the rank"
            problems.append(Problem((*path, "rank"), message))
        if self.max_ties is not None and not self.ties:
            problems.append(Problem((*path, "max_ties"), "`max_ties` has no effect without `ties`; remove it"))
        if problems:
            return problems
        ranks: Columns = {} if rank is None else {rank: _RANK}
        output_columns = rows.columns | ranks if rows.columns_known else {}
        if not self.is_keyed:
            return OutputRows(output_columns, None, RETRACTIONS, (), columns_known=rows.columns_known, deletes=True)
        # An input row that is deleted, or that an update moves to another key, may leave the last rank of its key
        # empty.
        deletes = rows.retracts and (rows.deletes or not set(self.key) <= set(rows.key))
        return OutputRows(
            output_columns, None, UPDATES, (*self.key, *ranks), columns_known=rows.columns_known, deletes=deletes
        )

    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        (rows,) = inputs
        order = rows.by(SORTED, ordered_columns(self.order_by))
        deciding = union(rows.rows, rows.by(GROUPED, self.key), order)
        ranked = {} if self.rank is None else {self.rank: union(rows.by(GROUPED, self.key), order)}
        return RowsLineage({**rows.columns, **ranked} if rows.columns else {}, deciding, rows.any_column)

    def row_traces(self, inputs: Sequence[Sequence[str]], times: Sequence[str | None]) -> tuple[RowTrace, ...]:
        picked = inputs[0] if self.rank is None else ()  # a rank depends on the other rows of the key
        return (RowTrace(0, same_names(self.key), same_names(picked)),)

    def state_columns(self) -> list[tuple[str, list[str]]]:
        return [("", [*self.key, *ordered_columns(self.order_by)])]

    def holds_event_times(self, event_time: str | None) -> bool:
        return event_time in ordered_columns(self.order_by)

    def signature(self, *, retracts: bool) -> dict[str, Any]:
        # State does not hold the rows below the n-th.
        return {"order_by": order_texts(self.order_by), "n": self.n} | ({"ties": self.ties} if self.ties else {})

    def state_bounds(self) -> tuple[StateBound, ...]:
        rows = f"the rows of the first {self.n:,} ranks" if self.ties else f"at most {self.n:,} rows"
        return (bound_per_key(rows, self.key),)
