"""Spec of the `over` operator: functions over the rows of a partition, in an order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from milepost.language import ColumnName, ColumnType, Path, Problem, did_you_mean
from milepost.operators.base.operator_spec import (
    AnyColumns,
    EventTimeRule,
    KeyedOperator,
    OrderColumns,
    order_texts,
    ordered_columns,
)
from milepost.operators.base.origins import AGGREGATED, MADE_OF, WINDOWED, RowsLineage, union
from milepost.operators.base.output_rows import (
    APPEND,
    UPDATES,
    Columns,
    OutputRows,
    append_problems,
    key_problems,
    scalar_problems,
)
from milepost.operators.base.state_bounds import StateBound
from milepost.operators.over.calls import AGGREGATES, SYNTAX, OverCall, over_type, over_type_problem, parse_over

_Over = Annotated[
    OverCall,
    BeforeValidator(parse_over),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "description": SYNTAX}),
]


class OverOperator(KeyedOperator):
    """Functions over the rows of a partition, as SQL's `OVER (PARTITION BY … ORDER BY … ROWS …)`.

    Each row of the input is a row of the output, with a column per function. The output is updates by `key` and
    `row_key`, and has no event time. An epoch evaluates the partitions with changed rows as a whole, and emits the rows
    whose values changed. Rows that tie in `order_by` are in the order of `row_key`.

    Attributes:
        inputs: name of one operator. Its rows must be updates, or append rows with a key.
        key: columns of the partition, each once. []: all rows are one partition, in one task.
        order_by: columns, each once; `{column: desc}` sorts descending. As in Spark, null is the smallest value and NaN
            the greatest number. Only `count`, `sum`, `avg`, `min` and `max` of whole partitions need no order.
        row_key: columns that together identify a row of the input. []: the input has one row. If two rows have the same
            values and nothing is in flight, the epoch fails.
        functions: output column -> function. Without `rows …` a function reads the rows up to the last one that ties
            with the current row, or without `order_by` the whole partition. Types are those of Spark. Sums of floats
            are exact, rounded once.
    """

    kind: Literal["over"]
    key: AnyColumns
    order_by: OrderColumns = ()
    row_key: AnyColumns
    functions: Annotated[dict[ColumnName, _Over], Field(min_length=1)]

    event_time_rule: ClassVar[EventTimeRule] = EventTimeRule("none")
    lost_state: ClassVar[str] = "the rows of each partition: functions will only read later rows"
    publishes_state: ClassVar[bool] = True

    @property
    def output_key(self) -> tuple[str, ...]:
        """Key of the output: a row that moves to another partition is deleted and inserted."""
        return (*self.key, *(name for name in self.row_key if name not in self.key))

    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return the input's columns and the functions: updates by `key` and `row_key`, without event time."""
        (rows,), (name,) = inputs, self.inputs
        problems = [*self._input_problems(rows, path), *key_problems(self.key, name, rows, path)]
        problems += scalar_problems("a key", self.row_key, name, rows, (*path, "row_key"))
        columns = ordered_columns(self.order_by)
        problems += scalar_problems("an order", columns, name, rows, (*path, "order_by"))
        problems += self._function_problems(rows, path)
        if problems:
            return problems
        made: Columns = {output: over_type(call, rows.columns) for output, call in self.functions.items()}
        deletes = rows.retracts and (rows.deletes or not {*self.output_key} <= {*rows.key})
        return OutputRows(
            rows.columns | made if rows.columns_known else {},
            None,
            UPDATES,
            self.output_key,
            columns_known=rows.columns_known,
            deletes=deletes,
        )

    def _input_problems(self, rows: OutputRows, path: Path) -> Iterator[Problem]:
        (name,) = self.inputs
        if rows.kind == APPEND and rows.key and rows.repeats_keys:
            message = (
                f"a key may return in the rows of {name}, because `kind: deduplicate` with a `ttl` forgets keys; two "
                "rows with one key would never become unique; remove the `ttl`, or read the newest row of each key "
                "(`kind: latest`)"
            )
            yield Problem((*path, "inputs", 0), message)
        elif rows.kind == APPEND and not (rows.key and {*rows.key} <= {*self.row_key}):
            message = (
                f"the rows of {name} are append without a key that `row_key` contains, so two rows with one key would "
                "never become unique; read the newest row of each key (`kind: latest`), or `kind: deduplicate`"
            )
            yield Problem((*path, "inputs", 0), message)
        elif not rows.retracts:
            yield from append_problems(self.kind, name, rows, path)

    def _function_problems(self, rows: OutputRows, path: Path) -> Iterator[Problem]:
        (name,) = self.inputs
        folded = {column.casefold(): column for column in rows.columns}
        for output, call in self.functions.items():
            at = (*path, "functions", output)
            if output.casefold() in folded:
                yield Problem(at, f"{name} already has a column {folded[output.casefold()]}; choose another name")
            if call.needs_order and not self.order_by:
                yield Problem(at, f"{call} depends on the order of rows; add `order_by`")
            if call.column is not None and rows.columns_known and call.column not in rows.columns:
                yield Problem(at, f"{name} has no column {call.column}; {did_you_mean(call.column, rows.columns)}")
            elif problem := over_type_problem(call, rows.type_of(call.column)):
                yield Problem(at, problem)

    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        (rows,) = inputs
        place = rows.by(WINDOWED, (*self.key, *ordered_columns(self.order_by)))
        made = {
            output: union(rows.by(AGGREGATED if call.function in AGGREGATES else MADE_OF, [call.column]), place)
            for output, call in self.functions.items()
        }
        return RowsLineage({**rows.columns, **made} if rows.columns else {}, rows.rows, rows.any_column)

    @property
    def named_columns(self) -> tuple[str, ...]:
        return (*self.output_key, *self.functions)

    @property
    def update_calls(self) -> dict[str, str]:
        return {name: str(call) for name, call in self.functions.items()}

    def state_columns(self) -> list[tuple[str, list[str]]]:
        read = [call.column for call in self.functions.values() if call.column is not None]
        return [("", [*dict.fromkeys((*self.output_key, *ordered_columns(self.order_by), *read))])]

    def holds_event_times(self, event_time: str | None) -> bool:
        return event_time in ordered_columns(self.order_by)

    def signature(self, *, retracts: bool) -> dict[str, Any]:
        # Partitions without new rows have published rows, which depend on all of this.
        return {"order_by": order_texts(self.order_by), "row_key": list(self.row_key), "functions": self.update_calls}

    def state_bounds(self) -> tuple[StateBound, ...]:
        return (StateBound("", f"the rows of {self.inputs[0]}", grows_with=f"rows of {self.inputs[0]}"),)
