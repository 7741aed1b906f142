"""Rows of sources, and why sinks and expectation suites cannot take the rows they are given."""

from __future__ import annotations

from milepost.jobspec.job.sources.messages import MESSAGE_COLUMNS
from milepost.jobspec.job.sources.source_spec import SourceSpec
from milepost.jobspec.job.spec import Expectation, JobSpec, QualitySpec, SinkSpec
from milepost.language import (
    INTEGERS,
    SINK_FORMATS,
    ColumnType,
    Combination,
    Path,
    Problem,
    combination_of,
    did_you_mean,
    not_available,
)
from milepost.operators.base import APPEND, BAD, REJECTED, RETRACTIONS, UPDATES, Columns, OutputRows

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

_BAD_MESSAGE_COLUMNS: Columns = {name: MESSAGE_COLUMNS[name] for name in ("topic", "partition", "offset")}

_PARTITION_KINDS = (*INTEGERS, "string", "bool", "date")


def bad_columns(source: SourceSpec) -> Columns:
    """Return the columns of a source's `.bad` output. A message has no line, but its topic, partition and offset."""
    return BAD_COLUMNS if source.layout.messages is None else {**BAD_COLUMNS, **_BAD_MESSAGE_COLUMNS}


def source_rows(source: SourceSpec) -> OutputRows:
    """Return the columns of a source's schema, then its partition columns."""
    return OutputRows(dict(source.row_types), source.time_column, APPEND, ())


def input_problems(sink: SinkSpec, rows: OutputRows, path: Path) -> list[Problem]:
    """Return why a sink cannot publish these rows."""
    if sink.mode != "append" and sink.input.endswith((BAD, REJECTED)):
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
        hint = "add `kind: materialize` with a key, or a `rank` to `kind: top`, or select the unchanged key in SQL"
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


def early_window_problems(spec: JobSpec, uid: str, sink: SinkSpec, path: Path) -> list[Problem]:
    """Refuse a table of buckets for `emit: early`, because every epoch would rewrite all of it.

    Args:
        uid: the operator that supplies the table's rows.
    """
    if not any(operator.uid == uid and operator.emits_early for operator in spec.operators):
        return []
    refusal = f"{not_available('mode: upsert')} for `emit: early` and format: {sink.format}"
    others = " or ".join(format_.name for format_ in SINK_FORMATS.values() if not format_.is_open)
    return [Problem((*path, "mode"), f"{refusal}; use format: {others}, or mode: changelog")]
