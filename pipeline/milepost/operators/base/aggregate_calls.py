"""Output columns, checks, state and lineage of aggregate calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from milepost.language import AggregateCall, Path, Problem, call_type_problem, did_you_mean, result_type
from milepost.language.sql import SqlProblem, check_condition
from milepost.operators.base.origins import AGGREGATED, FILTERED, SORTED, Origins, RowsLineage, after_step, union
from milepost.operators.base.output_rows import Columns, OutputRows, nanosecond_problems
from milepost.operators.base.sql_lineage import condition_origins


def aggregate_problems(aggregates: dict[str, AggregateCall], name: str, rows: OutputRows, path: Path) -> list[Problem]:
    problems = []
    if rows.columns_known and any(call.condition is not None for call in aggregates.values()):
        problems += nanosecond_problems(name, rows, (*path, "inputs", 0))
    for output, call in aggregates.items():
        needed = [column for column in call.columns if call.condition is None or column != call.where]
        absent = [column for column in needed if rows.columns_known and column not in rows.columns]
        if absent:
            message: str | None = f"{name} has no column {absent[0]}; {did_you_mean(absent[0], rows.columns)}"
        else:
            message = (
                call_type_problem(call, rows.columns) or _time_problem(call, rows) or _filter_problem(call, name, rows)
            )
        if message:
            problems.append(Problem((*path, "aggregates", output), message))
    return problems


def _time_problem(call: AggregateCall, rows: OutputRows) -> str | None:
    try:
        call.timed(rows.event_time)
    except ValueError as problem:
        return str(problem)
    return None


def _filter_problem(call: AggregateCall, name: str, rows: OutputRows) -> str | None:
    if call.condition is None:
        return None
    try:
        check_condition(call.condition, name, rows.columns if rows.columns_known else None)
    except SqlProblem as problem:
        return f"filter (where {call.condition}): {problem}"
    return None


def aggregate_columns(aggregates: dict[str, AggregateCall], rows: OutputRows) -> Columns:
    return {output: result_type(call, rows.type_of(call.column)) for output, call in aggregates.items()}


def aggregate_conditions(aggregates: Mapping[str, AggregateCall]) -> tuple[tuple[str, str], ...]:
    """Return (column name, SQL condition) for each distinct `filter` condition of the calls."""
    return tuple({call.where: call.condition for call in aggregates.values() if call.where and call.condition}.items())


def aggregate_lineage(
    aggregates: Mapping[str, AggregateCall], input_name: str, rows: RowsLineage, time: str | None
) -> dict[str, Origins]:
    """Return output column -> origins. `time` is the event time column of the input."""
    return {name: _call_lineage(call.timed(time), input_name, rows) for name, call in aggregates.items()}


def _call_lineage(call: AggregateCall, input_name: str, rows: RowsLineage) -> Origins:
    if call.condition is not None:
        where = after_step(FILTERED, condition_origins(call.condition, input_name, rows))
    else:
        where = rows.by(FILTERED, (call.where,))
    return union(rows.by(AGGREGATED, (call.column,)), rows.by(SORTED, (call.by,)), where)


def value_tables(aggregates: Mapping[str, AggregateCall]) -> Iterator[tuple[str, AggregateCall]]:
    """Yield the (table, call) of distinct counts; calls that share a table occur once."""
    tables = {call.value_table: call for call in aggregates.values() if call.value_table is not None}
    yield from tables.items()


def recorded_columns(aggregates: Mapping[str, AggregateCall], key: tuple[str, ...]) -> list[tuple[str, list[str]]]:
    """Return what `StatefulSpec.state_columns` returns for an operator with aggregates."""
    return [("", [*key, *(column for call in aggregates.values() for column in call.columns)])]


def aggregated_columns(
    aggregates: Mapping[str, AggregateCall], key: tuple[str, ...], event_time: str | None
) -> frozenset[str]:
    """Return the input columns of key and calls."""
    calls = (call.timed(event_time) for call in aggregates.values())
    return frozenset({*key, *(column for call in calls for column in call.columns)})
