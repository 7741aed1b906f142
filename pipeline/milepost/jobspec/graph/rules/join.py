"""Output rows of `join`, and checks shared by operators with two inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from milepost.jobspec.graph.rules.node import (
    APPEND,
    Columns,
    OutputRows,
    append_problems,
    event_time_problems,
    key_problems,
)
from milepost.jobspec.job.operators.asof import AsofOperator
from milepost.jobspec.job.operators.join import JoinOperator
from milepost.jobspec.job.operators.lookup import LookupOperator
from milepost.language import FLOATS, INTEGERS, ColumnType, Path, Problem, did_you_mean
from milepost.language.times import format_duration, in_us

Timed = JoinOperator | AsofOperator
Paired = Timed | LookupOperator
"""Operators whose rows have the columns of two inputs."""

SIDES = ("left", "right")
"""Names of the inputs by position, as in state tables and in `columns`."""

_NEVER = timedelta(days=3650)
"""A bound of `within` from which on `how: anti` would practically never emit a row."""

LEFT_ALONE = ("semi", "anti")
"""Values of `how` that emit only left columns."""


def join_rows(operator: JoinOperator, inputs: Sequence[OutputRows], path: Path) -> OutputRows | list[Problem]:
    """Return the left columns, then the right ones without the key: append, with the left event time.

    semi and anti have only the left columns. An unmatched row is emitted late: with `within: [lo, hi]`, a left row
    waits until the watermark is hi after it, and a right row until it is -lo after it.
    """
    # within: [-5m, 1h], how: left   -> holdback 1h: an unmatched left row of 12:00 is emitted at watermark 13:00
    # within: [-2h, 1h], how: right  -> holdback 2h: an unmatched right row of 12:00 is emitted at watermark 14:00
    left, right = inputs
    problems = paired_problems(operator, "a join", inputs, path)
    if operator.how == "right" and not problems:
        problems += _right_alone_problems(operator, left, right, path)
    if operator.how in LEFT_ALONE and operator.columns:
        message = f"`how: {operator.how}` emits only the columns of the left input: there is nothing to rename"
        problems.append(Problem((*path, "columns"), message))
    elif operator.how not in LEFT_ALONE and left.columns_known and right.columns_known:
        problems += pair_column_problems(operator, left, right, path)
    if problems:
        return problems
    low, high = map(in_us, operator.bounds)
    if operator.how == "anti" and high >= in_us(_NEVER):
        wait = format_duration(operator.bounds[1])
        message = f"`how: anti` emits a row once the watermark is {wait} after it, which is practically never"
        return [Problem((*path, "within"), f"{message}; choose a smaller upper bound")]
    return OutputRows(
        left.columns if operator.how in LEFT_ALONE else joined_columns(operator, left, right),
        left.event_time,
        APPEND,
        (),
        columns_known=left.columns_known and (right.columns_known or operator.how in LEFT_ALONE),
        shift_us=left.shift_us,
        holdback_us=max(0, high, -low if operator.how == "right" else 0),
    )


def paired_problems(operator: Timed, what: str, inputs: Sequence[OutputRows], path: Path) -> list[Problem]:
    """Return why rows of two inputs cannot be matched by key and event time.

    Args:
        what: the operator in messages, such as "a join".
    """
    left, right = inputs
    problems: list[Problem] = []
    for position, (name, rows) in enumerate(zip(operator.inputs, inputs, strict=True)):
        problems += append_problems(operator.kind, name, rows, path, position)
        problems += event_time_problems(f"the {SIDES[position]} input of {what}", name, rows, path, position)
        problems += key_problems(tuple(pair[position] for pair in operator.key), name, rows, path)
    return [*problems, *key_type_problems(operator, left, right, path)]


def joined_columns(operator: Paired, left: OutputRows, right: OutputRows) -> Columns:
    """Return the left columns, then the right ones without the key; {} if not all are known."""
    if not (left.columns_known and right.columns_known):
        return {}
    new = {column: name for name, column in operator.renamed.items()}
    return left.columns | {new.get(name, name): type_ for name, type_ in _right_columns(operator, right)}


def _right_columns(operator: Paired, right: OutputRows) -> Iterator[tuple[str, ColumnType | None]]:
    keys = {pair[1] for pair in operator.key}
    return ((name, type_) for name, type_ in right.columns.items() if name not in keys)


def pair_column_problems(operator: Paired, left: OutputRows, right: OutputRows, path: Path) -> Iterator[Problem]:
    """Yield problems of output column names that occur twice, and of renamed columns that do not exist."""
    right_columns = [name for name, _ in _right_columns(operator, right)]
    for name, column in operator.renamed.items():
        if column not in right_columns:
            message = f"{operator.inputs[1]} has no column {column} outside the key; "
            yield Problem((*path, "columns", name), message + did_you_mean(column, right_columns))
    new = {column: name for name, column in operator.renamed.items()}
    taken = {name.casefold(): f"{operator.inputs[0]}.{name}" for name in left.columns}
    for column in right_columns:
        name = new.get(column, column)
        other = taken.setdefault(name.casefold(), f"{operator.inputs[1]}.{column}")
        if other != f"{operator.inputs[1]}.{column}":
            message = f"{name} would be both {other} and {operator.inputs[1]}.{column}; rename the right column"
            yield Problem((*path, "columns"), f"{message}: columns: {{right_{column}: right.{column}}}")


def key_type_problems(operator: Paired, left: OutputRows, right: OutputRows, path: Path) -> Iterator[Problem]:
    """Yield problems of key column pairs whose types cannot be compared."""
    for index, (left_name, right_name) in enumerate(operator.key):
        types = left.type_of(left_name), right.type_of(right_name)
        if types[0] is None or types[1] is None or types[0].is_nested or types[1].is_nested:
            continue
        if key_family(types[0]) != key_family(types[1]):
            message = f"{left_name} is {types[0]}, but {right_name} is {types[1]}: their values cannot be compared"
            yield Problem(
                (*path, "key", index), f"{message}; CAST one of them in a `sql` operator before the {operator.kind}"
            )


def _right_alone_problems(operator: JoinOperator, left: OutputRows, right: OutputRows, path: Path) -> Iterator[Problem]:
    """Yield why the left columns cannot hold the key and event time of an unmatched right row."""
    if left.shift_us != right.shift_us:
        message = "`how: right` cannot combine the event time of a window, which is its exclusive end, with another"
        yield Problem((*path, "how"), f"{message}; swap the inputs and write how: left")
    assert left.event_time is not None and right.event_time is not None, "both have an event time"
    for left_name, right_name in (*operator.key, (left.event_time, right.event_time)):
        types = left.type_of(left_name), right.type_of(right_name)
        if types[0] is not None and types[1] is not None and not _holds(types[0], types[1]):
            message = f"`how: right` stores {operator.inputs[1]}.{right_name} ({types[1]}) in {left_name} ({types[0]})"
            hint = f"which cannot hold it; CAST {left_name} in a `sql` operator before the join"
            yield Problem((*path, "how"), f"{message}, {hint}")


def _holds(type_: ColumnType, values: ColumnType) -> bool:
    """Return whether `type_` can hold all values of the type `values`."""
    if key_family(type_) != key_family(values):
        return False
    for ladder in (INTEGERS, FLOATS):
        if type_.kind in ladder:
            return ladder.index(type_.kind) >= ladder.index(values.kind)
    if type_.kind == "timestamp":
        return _UNITS.index(type_.unit) >= _UNITS.index(values.unit)
    return type_.precision >= values.precision


_UNITS = ("s", "ms", "us", "ns")


def key_family(type_: ColumnType) -> tuple[object, ...]:
    """Return the family of a key type. Values of two types compare and hash equal only within a family."""
    # int32 and int64: ("integer",), so 7 matches 7. timestamp[us] and timestamp[ns]: different families.
    if type_.kind in INTEGERS:
        return ("integer",)
    if type_.kind in FLOATS:
        return ("float",)
    if type_.kind == "timestamp":
        return type_.kind, type_.utc, type_.unit == "ns"
    return type_.kind, type_.scale
