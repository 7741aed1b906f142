"""Output schema and changelog mode of window operators."""

from __future__ import annotations

from milepost.jobspec.graph.edges import WINDOW_COLUMNS, WINDOW_END
from milepost.jobspec.graph.rules.node import (
    APPEND,
    LAST_MOMENT_US,
    UPDATES,
    WINDOW_TIME,
    Columns,
    OutputRows,
    aggregate_columns,
    aggregate_problems,
    append_problems,
    event_time_problems,
    key_problems,
)
from milepost.jobspec.job.availability import not_available
from milepost.jobspec.job.operators.window import WindowOperator
from milepost.jobspec.job.spec import JobSpec, SinkSpec
from milepost.language import SINK_FORMATS, Path, Problem
from milepost.language.times import in_us


def window_rows(operator: WindowOperator, name: str, rows: OutputRows, path: Path) -> OutputRows | list[Problem]:
    """Return key, window and aggregates: append, or updates with allowed lateness or `emit: early`.

    Updates of sessions are keyed by key and start, because a session may grow and change its end. So they have no event
    time.
    """
    problems = append_problems(operator.kind, name, rows, path) or event_time_problems("a window", name, rows, path)
    problems += key_problems(operator.key, name, rows, path)
    problems += aggregate_problems(operator.aggregates, name, rows, path)
    if problems:
        return problems
    columns: Columns = {column: rows.type_of(column) for column in operator.key}
    columns |= dict.fromkeys(WINDOW_COLUMNS, WINDOW_TIME)
    columns |= aggregate_columns(operator.aggregates, rows)
    key, holdback_us = (*operator.key, *WINDOW_COLUMNS), in_us(operator.allowed_lateness)
    if operator.updates and operator.window.session is not None:
        return OutputRows(columns, None, UPDATES, key[:-1], holdback_us=holdback_us, deletes=True)
    kind = UPDATES if operator.updates else APPEND
    return OutputRows(columns, WINDOW_END, kind, key, shift_us=LAST_MOMENT_US, holdback_us=holdback_us)


def early_window_problems(spec: JobSpec, uid: str, sink: SinkSpec, path: Path) -> list[Problem]:
    """Refuse a table of buckets for `emit: early`, because every epoch would rewrite all of it.

    Args:
        uid: the operator whose rows the table shows.
    """
    if not any(
        operator.uid == uid and isinstance(operator, WindowOperator) and operator.emit == "early"
        for operator in spec.operators
    ):
        return []
    refusal = f"{not_available('mode: upsert')} for `emit: early` and format: {sink.format}"
    others = " or ".join(format_.name for format_ in SINK_FORMATS.values() if not format_.is_open)
    return [Problem((*path, "mode"), f"{refusal}; use format: {others}, or mode: changelog")]
