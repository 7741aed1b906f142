"""Output rows of sources, `aggregate` and `deduplicate`, and checks shared by all operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.jobspec.graph.edges import BAD
from milepost.jobspec.job.availability import not_available
from milepost.jobspec.job.spec import (
    AggregateOperator,
    DeduplicateOperator,
    Expectation,
    QualitySpec,
    SinkSpec,
    SourceSpec,
)
from milepost.language import (
    INTEGERS,
    SINK_FORMATS,
    AggregateCall,
    ColumnType,
    Combination,
    Path,
    Problem,
    call_type_problem,
    combination_of,
    did_you_mean,
    result_type,
    updates_problem,
)
from milepost.language.sql import SqlProblem, check_condition

LAST_MOMENT_US = -1
"""Offset from the end of a window, which is exclusive, to its last microsecond."""

WINDOW_TIME = ColumnType("timestamp", unit="us", utc=True)
APPEND, UPDATES, RETRACTIONS = "append", "updates", "retract"
"""Output modes. append: rows are final. updates: a row replaces the previous one with its key. retract: rows without a
key are retracted."""

Columns = dict[str, ColumnType | None]

CHANGELOG_COLUMNS: Columns = {"_op": ColumnType("string"), "_checkpoint": ColumnType("int64")}
"""Columns that a changelog adds: the operation, and the checkpoint that published the row."""

BAD_COLUMNS: Columns = {
    "object": ColumnType("string"),
    "line": ColumnType("int64"),
    "column": ColumnType("string"),
    "value": ColumnType("string"),
    "reason": ColumnType("string"),
    "raw": ColumnType("binary"),
}
"""Columns of an unreadable record. In a Parquet object, `line` is the number of the row."""

_PARTITION_KINDS = (*INTEGERS, "string", "bool", "date")


@dataclass(frozen=True, slots=True)
class OutputRows:
    """The rows that a node emits: columns in order, event time column, mode and key.

    Attributes:
        shift_us, holdback_us, deletes: as in `Node`.
        retracts: whether operators may read its updates, because the producer also emits the rows they replace.
        columns_known: whether the columns are known. They are not downstream of a process operator whose class was not
            loaded (`lint` and DAG files load none). Column names are then not checked, and event time and key are
            assumed to be kept.
    """

    columns: Columns
    event_time: str | None
    kind: str
    key: tuple[str, ...]
    columns_known: bool = True
    shift_us: int = 0
    holdback_us: int = 0
    deletes: bool = False
    retracts: bool = False

    def type_of(self, column: str | None) -> ColumnType | None:
        """Return a column's type, or None if it is not known."""
        return self.columns.get(column) if column is not None else None


def source_rows(source: SourceSpec) -> OutputRows:
    """Return the columns of a source's schema, then its partition columns."""
    return OutputRows(dict(source.row_types), source.time_column, APPEND, ())


def aggregate_rows(operator: AggregateOperator, name: str, rows: OutputRows, path: Path) -> OutputRows | list[Problem]:
    """Return key and aggregates: updates by key. Without key columns there is one row, which is never deleted."""
    problems = [] if rows.retracts else append_problems(operator.kind, name, rows, path)
    problems += key_problems(operator.key, name, rows, path) + aggregate_problems(operator.aggregates, name, rows, path)
    if rows.retracts:
        messages = {
            output: updates_problem(call, rows.type_of(call.column)) for output, call in operator.aggregates.items()
        }
        problems += [Problem((*path, "aggregates", output), text) for output, text in messages.items() if text]
    if problems:
        return problems
    columns: Columns = {column: rows.type_of(column) for column in operator.key}
    columns |= aggregate_columns(operator.aggregates, rows)
    # An input row that is deleted, or that an update moves to another key, may be the last row of its key. With input
    # updates by (city, day), an aggregate by city never loses a row of a city; an aggregate by status may.
    may_leave = rows.retracts and (rows.deletes or not set(operator.key) <= set(rows.key))
    return OutputRows(columns, None, UPDATES, operator.key, deletes=may_leave and bool(operator.key))


def deduplicate_rows(
    operator: DeduplicateOperator, name: str, rows: OutputRows, path: Path
) -> OutputRows | list[Problem]:
    """Return the input's columns: append, with its event time."""
    problems = append_problems(operator.kind, name, rows, path) + key_problems(operator.key, name, rows, path)
    if operator.ttl is not None:
        problems += event_time_problems("a ttl", name, rows, path)
    if problems:
        return problems
    return OutputRows(
        rows.columns, rows.event_time, APPEND, operator.key, columns_known=rows.columns_known, shift_us=rows.shift_us
    )


def sink_problems(sink: SinkSpec, rows: OutputRows, path: Path) -> list[Problem]:
    """Return why a sink cannot publish these rows."""
    if sink.mode != "append" and sink.input.endswith(BAD):
        return [Problem((*path, "mode"), f"{sink.input} can be read only by a sink with mode: append")]
    if sink.mode == "append" and rows.kind == UPDATES:
        return [
            Problem(
                (*path, "mode"),
                f"{sink.input} emits updates, which an append sink cannot publish; use mode: upsert or changelog",
            )
        ]
    if rows.kind == RETRACTIONS:
        message = f"{sink.input} emits rows that are retracted and have no key, which no sink can publish"
        hint = "add a `rank` to kind: top, select the unchanged key in SQL, or read it with an aggregate"
        return [Problem((*path, "input"), f"{message}; {hint}")]
    if sink.mode == "upsert" and rows.kind == APPEND and not rows.key:
        return [Problem((*path, "mode"), f"{sink.input} has no key to upsert by; use mode: append")]
    if SINK_FORMATS[sink.format].is_database and not rows.key:
        message = (
            f"{not_available('key: []')} for format: {sink.format}, which needs a primary key; aggregate by a constant "
            f"column: `SELECT *, 'all' AS scope FROM …` in a `sql` operator before {sink.input}"
        )
        return [Problem((*path, "format"), message)]
    taken = [name for name in CHANGELOG_COLUMNS if name in rows.columns] if sink.mode == "changelog" else []
    return [
        Problem((*path, "mode"), f"{sink.input} has a column {name}, which a changelog adds; rename it")
        for name in taken
    ]


def partition_problems(sink: SinkSpec, rows: Columns, path: Path) -> list[Problem]:
    """Return why rows cannot be partitioned by a sink's `partition_by`. Unknown types are checked in the epoch."""
    columns = rows | (CHANGELOG_COLUMNS if sink.mode == "changelog" else {})
    problems = []
    for column in sink.partition_by or ():
        type_ = columns.get(column)
        if column not in columns and "(" not in column:
            message = f"{sink.input} has no column {column}; {did_you_mean(column, columns)}"
            problems.append(Problem((*path, "partition_by"), message))
        elif type_ is not None and not (
            type_.kind in _PARTITION_KINDS or (type_.kind, type_.unit) == ("timestamp", "us")
        ):
            message = f"{column} is {type_}; available: string, whole numbers, bool, date, timestamp in microseconds"
            problems.append(Problem((*path, "partition_by"), message))
    return problems


def suite_problems(suite: QualitySpec, columns: Columns, path: Path) -> list[Problem]:
    """Return problems of expectations on columns that the sink does not have, and of a `sample` without effect."""
    problems = []
    if suite.sample is not None and not any(_may_need_all_rows(item, columns) for item in suite.expectations):
        message = "`sample` has no effect: every expectation of the suite is validated on all rows; remove it"
        problems.append(Problem((*path, "sample"), message))
    for index, expectation in enumerate(suite.expectations):
        for argument in ("column", "column_A", "column_B"):
            column = expectation.arguments.get(argument)
            if isinstance(column, str) and column not in columns:
                message = f"sink {suite.sink} has no column {column}; {did_you_mean(column, columns)}"
                problems.append(Problem((*path, "expectations", index, argument), message))
    return problems


def _may_need_all_rows(expectation: Expectation, columns: Columns) -> bool:
    """Return whether an expectation may need all rows in one process, and so be validated on a sample."""
    combination, arguments = combination_of(expectation.type, expectation.arguments), expectation.arguments
    if combination not in (Combination.MEAN, Combination.KEYS, Combination.DISTINCT):
        return combination is Combination.ALL
    names = arguments.get("column_list", [arguments.get("column")])
    types = [columns.get(name) for name in names] if isinstance(names, list) else [None]
    if combination is Combination.MEAN:  # times have no sum
        return any(type_ is None or type_.kind in ("date", "timestamp") for type_ in types)
    return any(type_ is None or type_.is_nested for type_ in types)


def nanosecond_problems(name: str, rows: OutputRows, path: Path) -> list[Problem]:
    """Return a problem for each column with nanoseconds. Whole rows pass through Spark, which has microseconds."""
    return [
        Problem(
            path,
            f"{name} has the column {column} of type {type_}, but Spark has only microseconds, so precision would be "
            "lost; declare it in microseconds, or as string or int64",
        )
        for column, type_ in rows.columns.items()
        if type_ is not None and _has_nanoseconds(type_)
    ]


def _has_nanoseconds(type_: ColumnType) -> bool:
    inner = [type_.element] if type_.element is not None else [field for _, field in type_.fields]
    return type_.unit == "ns" or any(map(_has_nanoseconds, inner))


def append_problems(kind: str, name: str, rows: OutputRows, path: Path, position: int = 0) -> list[Problem]:
    """Return a problem if an input of an operator that needs append rows is updates."""
    if rows.kind == APPEND:
        return []
    return [
        Problem(
            (*path, "inputs", position), f"{kind} over updates (the rows of {name}) is not available in this version"
        )
    ]


def event_time_problems(what: str, name: str, rows: OutputRows, path: Path, position: int = 0) -> list[Problem]:
    """Return a problem if an input of an operator that needs an event time has none."""
    if rows.event_time is not None:
        return []
    message = (
        f"{what} needs an event time, but the rows of {name} have none: set `event_time` in the source, and select "
        "that column (after a window: window_end) under its name in sql"
    )
    return [Problem((*path, "inputs", position), message)]


def key_problems(key: tuple[str, ...], name: str, rows: OutputRows, path: Path) -> list[Problem]:
    """Return problems of key columns that the input does not have or that are nested."""
    return scalar_problems("a key", key, name, rows, (*path, "key"))


def scalar_problems(what: str, columns: Sequence[str], name: str, rows: OutputRows, path: Path) -> list[Problem]:
    """Return problems of columns that the input does not have, or that are lists or structs.

    Args:
        what: what the columns are used for, in messages: "a key". path: path of the list of columns.
    """
    problems = []
    for index, column in enumerate(columns):
        if column not in rows.columns and not rows.columns_known:
            continue
        if column not in rows.columns:
            message = f"{name} has no column {column}; {did_you_mean(column, rows.columns)}"
        elif (type_ := rows.type_of(column)) is not None and type_.is_nested:
            message = f"{column} is {type_}; {what} cannot contain lists or structs"
        else:
            continue
        problems.append(Problem((*path, index), message))
    return problems


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
