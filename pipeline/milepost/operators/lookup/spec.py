"""Spec of the `lookup` operator: add columns of a static source to each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from milepost.language import ColumnType, Path, Problem, did_you_mean
from milepost.operators.base.operator_spec import EventTimeRule, OrderColumns, RowWiseSpec, ordered_columns
from milepost.operators.base.origins import SORTED, RowsLineage, union
from milepost.operators.base.output_rows import APPEND, OutputRows, append_problems, key_problems
from milepost.operators.base.row_trace import RowTrace
from milepost.operators.base.two_inputs import (
    TwoInputs,
    joined_columns,
    joined_lineage,
    key_type_problems,
    left_trace,
    pair_column_problems,
    right_trace,
)


class LookupOperator(TwoInputs, RowWiseSpec):
    """Adds the columns of a static source to each row, by key. It has no state and needs no exchange.

    The output has the columns of the row, then those of the static source without its key; event time and key are those
    of the row. A key that contains a null matches nothing. An epoch reads the objects that the source's path matches
    when the epoch is triggered.

    Attributes:
        uid: name of the operator: `[a-z][a-z0-9_]{0,62}` without `__`.
        inputs: name of a source or operator with append rows, then name of a source with `static: true`.
        key: columns that are equal in both, each once; `{column: column of the static source}` if their names differ.
        how: inner: rows without a match are dropped. left: they are emitted with nulls.
        order_by: columns of the static source, each once. If several of its rows have the same key, the first in this
            order is used; `{column: desc}` sorts descending. As in Spark, null is the smallest value and NaN the
            greatest number. Ties are broken by all columns, in the order of `schema`. Empty: a duplicate key fails the
            epoch.
        columns: new names for columns of the static source, needed where both have a column of the same name:
            `{maker: right.name}`.
    """

    kind: Literal["lookup"]
    how: Literal["inner", "left"] = "inner"
    order_by: OrderColumns = ()

    @property
    def dimension(self) -> str:
        """The static source."""
        return self.inputs[1]

    definition_text: ClassVar[str] = "how it looks up"
    event_time_rule: ClassVar[EventTimeRule] = EventTimeRule(
        "that of its input; the static source has none and holds nothing back"
    )

    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return the input's columns and those of the static source: append, with the input's event time and key."""
        left, right = inputs
        problems = append_problems(self.kind, self.inputs[0], left, path)
        for position, (name, rows) in enumerate(zip(self.inputs, inputs, strict=True)):
            problems += key_problems(tuple(pair[position] for pair in self.key), name, rows, path)
        problems += [*key_type_problems(self, left, right, path), *_order_problems(self, right, path)]
        if left.columns_known:
            problems += pair_column_problems(self, left, right, path)
        if problems:
            return problems
        return OutputRows(
            joined_columns(self, left, right),
            left.event_time,
            APPEND,
            left.key,
            columns_known=left.columns_known,
            shift_us=left.shift_us,
            repeats_keys=left.repeats_keys,
        )

    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        joined = joined_lineage(self, inputs, self.key)
        order = inputs[1].by(SORTED, ordered_columns(self.order_by))
        return RowsLineage(joined.columns, union(joined.rows, order), joined.any_column)

    def row_traces(self, inputs: Sequence[Sequence[str]], times: Sequence[str | None]) -> tuple[RowTrace, ...]:
        return (left_trace(inputs[0]), right_trace(self, inputs[1]))

    def columns_read(
        self, input_name: str, columns: Sequence[str], read_of_output: Callable[[], frozenset[str]]
    ) -> frozenset[str]:
        return read_of_output().union(left for left, _ in self.key)

    @property
    def definition(self) -> dict[str, Any]:
        return {"lookup": self.model_dump(mode="json", include={"key", "how", "order_by", "columns"})}


def _order_problems(operator: LookupOperator, right: OutputRows, path: Path) -> Iterator[Problem]:
    for index, (column, _) in enumerate(operator.order_by):
        if column not in right.columns:
            message = f"{operator.dimension} has no column {column}; {did_you_mean(column, right.columns)}"
            yield Problem((*path, "order_by", index), message)
