"""Spec of the `aggregate` operator: running aggregates per key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from milepost.language import BY_EVENT_TIME, AggregateCall, ColumnType, Path, Problem, updates_problem
from milepost.operators.base.aggregate_calls import (
    aggregate_columns,
    aggregate_conditions,
    aggregate_lineage,
    aggregate_problems,
    aggregated_columns,
    recorded_columns,
    value_tables,
)
from milepost.operators.base.operator_spec import Aggregates, AnyColumns, EventTimeRule, KeyedOperator
from milepost.operators.base.origins import GROUPED, Origins, RowsLineage, union
from milepost.operators.base.output_rows import UPDATES, Columns, OutputRows, append_problems, key_problems
from milepost.operators.base.state_bounds import StateBound, bound_per_key, growth_over_updates


class AggregateOperator(KeyedOperator):
    """Running aggregates per key. Each epoch emits the keys that changed.

    Attributes:
        key: key columns, each once. []: one row of totals over all rows, which exists from the first epoch on.
        inputs: name of one source or operator. Its rows may be append or updates. Over updates, sum, avg, stddev and
            var of floats are exact sums, rounded once.
        aggregates: output column -> aggregate call. Nulls are treated as in SQL. Sums of integers are int64, averages
            are float64. `var` and `stddev` are sample statistics, null for fewer than two values. `first` and `last`
            are by event time, `arg_min(x, y)` and `arg_max(x, y)` by y; among rows with equal y, the smallest or
            largest x is taken. `any` and `every` take boolean columns. `filter (where z)` restricts the call to rows
            where z is true; z is a boolean column or a Spark SQL condition over one row.
    """

    kind: Literal["aggregate"]
    key: AnyColumns
    aggregates: Aggregates

    event_time_rule: ClassVar[EventTimeRule] = EventTimeRule("none")
    can_be_bootstrapped: ClassVar[bool] = True
    lost_state: ClassVar[str] = "the totals so far: they restart at nothing"
    publishes_state: ClassVar[bool] = True

    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return key and aggregates: updates by key. Without key columns there is one row, which is never deleted."""
        (rows,), (name,) = inputs, self.inputs
        problems = [] if rows.retracts else append_problems(self.kind, name, rows, path)
        problems += key_problems(self.key, name, rows, path) + aggregate_problems(self.aggregates, name, rows, path)
        if rows.retracts:
            messages = {
                output: updates_problem(call, rows.type_of(call.column)) for output, call in self.aggregates.items()
            }
            problems += [Problem((*path, "aggregates", output), text) for output, text in messages.items() if text]
        if problems:
            return problems
        columns: Columns = {column: rows.type_of(column) for column in self.key}
        columns |= aggregate_columns(self.aggregates, rows)
        # An input row that is deleted, or that an update moves to another key, may be the last row of its key. With
        # input updates by (city, day), an aggregate by city never loses a row of a city; an aggregate by status may.
        may_leave = rows.retracts and (rows.deletes or not set(self.key) <= set(rows.key))
        return OutputRows(columns, None, UPDATES, self.key, deletes=may_leave and bool(self.key))

    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        (rows,), (time,) = inputs, times
        columns: dict[str, Origins] = {name: rows.of(name) for name in self.key}
        columns |= aggregate_lineage(self.aggregates, self.inputs[0], rows, time)
        return RowsLineage(columns, union(rows.rows, rows.by(GROUPED, self.key)))

    @property
    def named_columns(self) -> tuple[str, ...]:
        return (*self.key, *self.aggregates)

    @property
    def conditions(self) -> tuple[tuple[str, str], ...]:
        return aggregate_conditions(self.aggregates)

    def needed_columns(self, columns: Sequence[str], event_time: str | None) -> frozenset[str] | None:
        # Rows that are only counted need one column: Arrow rows without columns have no count.
        return aggregated_columns(self.aggregates, self.key, event_time) or frozenset(columns[:1]) or None

    @property
    def update_calls(self) -> dict[str, str]:
        return {name: str(call) for name, call in self.aggregates.items()}

    def state_columns(self) -> list[tuple[str, list[str]]]:
        return recorded_columns(self.aggregates, self.key)

    def holds_event_times(self, event_time: str | None) -> bool:
        return any(call.function in BY_EVENT_TIME for call in self.aggregates.values())

    def signature(self, *, retracts: bool) -> dict[str, Any]:
        return {}

    def state_bounds(self) -> tuple[StateBound, ...]:
        values = [
            replace(
                bound_per_key(f"a value of {call.column}", self.key), table=table, grows_with=f"distinct {call.column}"
            )
            for table, call in value_tables(self.aggregates)
        ]
        return (bound_per_key("a row", self.key), *values)

    def bounds_over_updates(
        self, input_name: str, key: Sequence[str] | None, event_time: str | None
    ) -> tuple[StateBound, ...]:
        grows_with = growth_over_updates(input_name, key)
        calls = [call.timed(event_time) for call in self.aggregates.values()]
        tables = {call.weighted_table: call for call in calls if call.weighted_table is not None}
        values = [
            StateBound(table, bound_per_key(f"a value of {_with_order(call)}", self.key).holds, grows_with=grows_with)
            for table, call in tables.items()
        ]
        return (bound_per_key("a row", self.key), *values)


def _with_order(call: AggregateCall) -> str:
    return f"{call.column} with {call.by}" if call.by is not None else str(call.column)
