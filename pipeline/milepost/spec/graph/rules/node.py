"""Node rules derive columns, event time, key and kind of output of each kind of node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.spec.graph.edges import BAD
from milepost.spec.job.availability import not_available
from milepost.spec.job.spec import (
    AggregateOperator,
    DeduplicateOperator,
    Expectation,
    QualitySpec,
    SinkSpec,
    SourceSpec,
)
from milepost.spec.sql.condition import check_condition
from milepost.spec.sql.sql_parse import SqlProblem
from milepost.spec.values.aggregates import AggregateCall, result_type, type_problem, updates_problem
from milepost.spec.values.expectation_combination import Combination, combination_of
from milepost.spec.values.names import did_you_mean
from milepost.spec.values.problems import Path, Problem
from milepost.spec.values.types import INTEGERS, ColumnType

LAST_MOMENT_US = -1
"""A window's row is of its window's last moment: its end, which is the first moment that is not in it, less this."""

WINDOW_TIME = ColumnType("timestamp", unit="us", utc=True)
APPEND, UPDATES, RETRACTIONS = "append", "updates", "retract"
"""Kinds of output: rows stay; a row replaces the last one with its key; rows come and are taken back, without a key."""

Columns = dict[str, ColumnType | None]

CHANGELOG_COLUMNS: Columns = {"_op": ColumnType("string"), "_checkpoint": ColumnType("int64")}
"""What a changelog adds to its rows: what each is, and the checkpoint that published it."""

BAD_COLUMNS: Columns = {
    "object": ColumnType("string"),
    "line": ColumnType("int64"),
    "column": ColumnType("string"),
    "value": ColumnType("string"),
    "reason": ColumnType("string"),
    "raw": ColumnType("binary"),
}
"""A record that cannot be read; its line is the row of a Parquet object."""

_PARTITION_KINDS = (*INTEGERS, "string", "bool", "date")


@dataclass(frozen=True, slots=True)
class OutputRows:
    """The rows that a node gives: columns in order, event time column, kind, and key.

    Attributes:
        shift_us: what is added to the event time, as in `Node`. holdback_us, deletes: as there.
        retracts: whether operators may read updates: its producer can tell the rows that they replace.
        known: whether the columns are. They are not below a process operator whose class was not loaded (`lint` and DAG
            files load none): then nothing is said about names, and event time and key are taken to be kept.
    """

    columns: Columns
    event_time: str | None
    kind: str
    key: tuple[str, ...]
    known: bool = True
    shift_us: int = 0
    holdback_us: int = 0
    deletes: bool = False
    retracts: bool = False

    def type_of(self, column: str | None) -> ColumnType | None:
        """Return a column's type as far as it is known."""
        return self.columns.get(column) if column is not None else None


def source_rows(source: SourceSpec) -> OutputRows:
    """Return a source's rows: its schema, then its partition columns."""
    return OutputRows(dict(source.row_types), source.time_column, APPEND, ())


def aggregate_rows(operator: AggregateOperator, name: str, rows: OutputRows, path: Path) -> OutputRows | list[Problem]:
    """Running aggregates: one row per changed key, updates. Without key columns there is one row, which never goes."""
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
    # A row that moves from one key to another, or goes, may be the last one of its key.
    leave = rows.retracts and (rows.deletes or not set(operator.key) <= set(rows.key))
    return OutputRows(columns, None, UPDATES, operator.key, deletes=leave and bool(operator.key))


def deduplicate_rows(
    operator: DeduplicateOperator, name: str, rows: OutputRows, path: Path
) -> OutputRows | list[Problem]:
    """Return the first row of each key, as it came, append."""
    problems = append_problems(operator.kind, name, rows, path) + key_problems(operator.key, name, rows, path)
    if operator.ttl is not None:
        problems += event_time_problems("a ttl", name, rows, path)
    if problems:
        return problems
    return OutputRows(rows.columns, rows.event_time, APPEND, operator.key, known=rows.known, shift_us=rows.shift_us)


def sink_problems(sink: SinkSpec, rows: OutputRows, path: Path) -> list[Problem]:
    """Return why a sink cannot publish these rows."""
    if sink.mode != "append" and sink.input.endswith(BAD):
        return [Problem((*path, "mode"), f"{sink.input} may feed a sink of mode: append alone")]
    if sink.mode == "append" and rows.kind == UPDATES:
        return [
            Problem(
                (*path, "mode"),
                f"{sink.input} gives updates, which an append sink cannot take; use mode: upsert or changelog",
            )
        ]
    if rows.kind == RETRACTIONS:
        message = f"{sink.input} gives rows that come and are taken back, without a key, and no sink takes those"
        way_out = (
            "name a `rank` where it is of kind: top, select the key as it is in SQL, or put an aggregate behind it"
        )
        return [Problem((*path, "input"), f"{message}; {way_out}")]
    if sink.mode == "upsert" and rows.kind == APPEND and not rows.key:
        return [Problem((*path, "mode"), f"{sink.input} has no key to upsert by; use mode: append")]
    if sink.format == "postgres" and not rows.key:
        message = (
            f"{not_available('key: []')} for format: postgres, where a row is told by its primary key; aggregate by a "
            f"column that is the same in all rows: `SELECT *, 'all' AS scope FROM …` before {sink.input}"
        )
        return [Problem((*path, "format"), message)]
    taken = [name for name in CHANGELOG_COLUMNS if name in rows.columns] if sink.mode == "changelog" else []
    return [
        Problem((*path, "mode"), f"{sink.input} has a column {name}, which a changelog adds; rename it")
        for name in taken
    ]


def partition_problems(sink: SinkSpec, rows: Columns, path: Path) -> list[Problem]:
    """Return why rows cannot be partitioned as a sink says; a type that only Spark knows is looked at in the epoch."""
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
    """Return expectations on columns that the sink does not get, and a sample that nothing is to be judged on."""
    problems = []
    if suite.sample is not None and not any(_may_need_all_rows(one, columns) for one in suite.expectations):
        message = "every expectation of the suite is judged on all rows, however many there are; remove `sample`"
        problems.append(Problem((*path, "sample"), message))
    for index, expectation in enumerate(suite.expectations):
        for argument in ("column", "column_A", "column_B"):
            column = expectation.arguments.get(argument)
            if isinstance(column, str) and column not in columns:
                message = f"sink {suite.sink} has no column {column}; {did_you_mean(column, columns)}"
                problems.append(Problem((*path, "expectations", index, argument), message))
    return problems


def _may_need_all_rows(expectation: Expectation, columns: Columns) -> bool:
    """Return whether an expectation is judged on a sample where there are too many rows to have all in one place."""
    how, arguments = combination_of(expectation.type, expectation.arguments), expectation.arguments
    if how not in (Combination.MEAN, Combination.KEYS, Combination.DISTINCT):
        return how is Combination.ALL
    names = arguments.get("column_list", [arguments.get("column")])
    types = [columns.get(name) for name in names] if isinstance(names, list) else [None]
    if how is Combination.MEAN:  # times have no sum
        return any(type_ is None or type_.kind in ("date", "timestamp") for type_ in types)
    return any(type_ is None or type_.is_nested for type_ in types)


def nanosecond_problems(name: str, rows: OutputRows, path: Path) -> list[Problem]:
    """Spark's times have microseconds: rows pass through it whole, so no column of them may be finer."""
    return [
        Problem(
            path,
            f"{name} has the column {column} of type {type_}, and Spark's times have microseconds: the rest would be "
            "lost; declare it in microseconds, or as string or int64",
        )
        for column, type_ in rows.columns.items()
        if type_ is not None and _has_nanoseconds(type_)
    ]


def _has_nanoseconds(type_: ColumnType) -> bool:
    inner = [type_.element] if type_.element is not None else [field for _, field in type_.fields]
    return type_.unit == "ns" or any(map(_has_nanoseconds, inner))


def append_problems(kind: str, name: str, rows: OutputRows, path: Path, position: int = 0) -> list[Problem]:
    """Return why an operator cannot take the rows of one of its inputs: they are updates."""
    if rows.kind == APPEND:
        return []
    return [
        Problem(
            (*path, "inputs", position), f"{kind} over updates (the rows of {name}) is not available in this version"
        )
    ]


def event_time_problems(what: str, name: str, rows: OutputRows, path: Path, position: int = 0) -> list[Problem]:
    """Return why an operator cannot time the rows of one of its inputs."""
    if rows.event_time is not None:
        return []
    message = (
        f"{what} needs an event time, and the rows of {name} have none: its source must name `event_time`, "
        "sql must keep that column under its name; of a window's rows it is window_end"
    )
    return [Problem((*path, "inputs", position), message)]


def key_problems(key: tuple[str, ...], name: str, rows: OutputRows, path: Path) -> list[Problem]:
    """Return columns of a key that an operator's input does not have, or that cannot be part of one."""
    return scalar_problems("a key is made", key, name, rows, (*path, "key"))


def scalar_problems(what: str, columns: Sequence[str], name: str, rows: OutputRows, path: Path) -> list[Problem]:
    """Return columns that an operator's input does not have, or that are lists or structs.

    Args:
        what: they are, as messages say it: "a key is made" of single values. path: of the list of columns.
    """
    problems = []
    for index, column in enumerate(columns):
        if column not in rows.columns and not rows.known:
            continue
        if column not in rows.columns:
            message = f"{name} has no column {column}; {did_you_mean(column, rows.columns)}"
        elif (type_ := rows.type_of(column)) is not None and type_.is_nested:
            message = f"{column} is {type_}; {what} of single values, no lists or structs"
        else:
            continue
        problems.append(Problem((*path, index), message))
    return problems


def aggregate_problems(aggregates: dict[str, AggregateCall], name: str, rows: OutputRows, path: Path) -> list[Problem]:
    problems = []
    if rows.known and any(call.condition is not None for call in aggregates.values()):
        problems += nanosecond_problems(name, rows, (*path, "inputs", 0))
    for output, call in aggregates.items():
        needed = [column for column in call.columns if call.condition is None or column != call.where]
        absent = [column for column in needed if rows.known and column not in rows.columns]
        if absent:
            message: str | None = f"{name} has no column {absent[0]}; {did_you_mean(absent[0], rows.columns)}"
        else:
            message = type_problem(call, rows.columns) or _time_problem(call, rows) or _filter_problem(call, name, rows)
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
        check_condition(call.condition, name, rows.columns if rows.known else None)
    except SqlProblem as problem:
        return f"filter (where {call.condition}): {problem}"
    return None


def aggregate_columns(aggregates: dict[str, AggregateCall], rows: OutputRows) -> Columns:
    return {output: result_type(call, rows.type_of(call.column)) for output, call in aggregates.items()}
