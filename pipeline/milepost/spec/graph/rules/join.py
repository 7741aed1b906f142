"""Join rules derive the rows that a join gives from those of its two inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from milepost.spec.graph.rules.node import (
    APPEND,
    Columns,
    OutputRows,
    append_problems,
    event_time_problems,
    key_problems,
)
from milepost.spec.job.operators.asof import AsofOperator
from milepost.spec.job.operators.join import JoinOperator
from milepost.spec.job.operators.lookup import LookupOperator
from milepost.spec.values.names import did_you_mean
from milepost.spec.values.problems import Path, Problem
from milepost.spec.values.times.durations import format_duration, in_us
from milepost.spec.values.types import FLOATS, INTEGERS, ColumnType

Timed = JoinOperator | AsofOperator
Paired = Timed | LookupOperator
"""Operators whose rows have the columns of two inputs."""

SIDES = ("left", "right")
"""Names of the inputs by position: of the tables that keep their rows, and in `columns`."""

_NEVER = timedelta(days=3650)
"""No row is awaited for so long."""

LEFT_ALONE = ("semi", "anti")
"""Of `how`: what comes out are left rows, by whether a right one pairs with them."""


def join_rows(operator: JoinOperator, inputs: Sequence[OutputRows], path: Path) -> OutputRows | list[Problem]:
    """Return pairs: the left row's columns, then the right row's without its key; append, by the left event time.

    Of semi and anti the left row's columns alone. A row that waited in vain is as much older than its stamp as it has
    waited: a left one hi, a right one -lo.
    """
    left, right = inputs
    problems = paired_problems(operator, "a join", inputs, path)
    if operator.how == "right" and not problems:
        problems += _right_alone_problems(operator, left, right, path)
    if operator.how in LEFT_ALONE and operator.columns:
        message = f"`how: {operator.how}` puts out the columns of the left input alone: there is nothing to rename"
        problems.append(Problem((*path, "columns"), message))
    elif operator.how not in LEFT_ALONE and left.known and right.known:
        problems += pair_column_problems(operator, left, right, path)
    if problems:
        return problems
    low, high = map(in_us, operator.bounds)
    if operator.how == "anti" and high >= in_us(_NEVER):
        wait = format_duration(operator.bounds[1])
        message = f"`how: anti` gives a row once the watermark is {wait} after it, so it would never give one"
        return [Problem((*path, "within"), f"{message}; write after how long a row no longer pairs")]
    return OutputRows(
        left.columns if operator.how in LEFT_ALONE else joined_columns(operator, left, right),
        left.event_time,
        APPEND,
        (),
        known=left.known and (right.known or operator.how in LEFT_ALONE),
        shift_us=left.shift_us,
        holdback_us=max(0, high, -low if operator.how == "right" else 0),
    )


def paired_problems(operator: Timed, what: str, inputs: Sequence[OutputRows], path: Path) -> list[Problem]:
    """Return why rows of two inputs with an event time cannot be paired.

    Args:
        what: the operator is, as messages say it.
    """
    left, right = inputs
    problems: list[Problem] = []
    for position, (name, rows) in enumerate(zip(operator.inputs, inputs, strict=True)):
        problems += append_problems(operator.kind, name, rows, path, position)
        problems += event_time_problems(f"the {SIDES[position]} input of {what}", name, rows, path, position)
        problems += key_problems(tuple(pair[position] for pair in operator.key), name, rows, path)
    return [*problems, *key_type_problems(operator, left, right, path)]


def joined_columns(operator: Paired, left: OutputRows, right: OutputRows) -> Columns:
    """Return the left columns, then the right ones without their key; {} where not all are known."""
    if not (left.known and right.known):
        return {}
    new = {column: name for name, column in operator.renamed.items()}
    return left.columns | {new.get(name, name): type_ for name, type_ in _right_columns(operator, right)}


def _right_columns(operator: Paired, right: OutputRows) -> Iterator[tuple[str, ColumnType | None]]:
    keys = {pair[1] for pair in operator.key}
    return ((name, type_) for name, type_ in right.columns.items() if name not in keys)


def pair_column_problems(operator: Paired, left: OutputRows, right: OutputRows, path: Path) -> Iterator[Problem]:
    """Yield names that would come twice, and renamed columns that the right input does not have."""
    own = [name for name, _ in _right_columns(operator, right)]
    for name, column in operator.renamed.items():
        if column not in own:
            message = f"{operator.inputs[1]} has no column {column} beside the key; {did_you_mean(column, own)}"
            yield Problem((*path, "columns", name), message)
    new = {column: name for name, column in operator.renamed.items()}
    taken = {name.casefold(): f"{operator.inputs[0]}.{name}" for name in left.columns}
    for column in own:
        name = new.get(column, column)
        other = taken.setdefault(name.casefold(), f"{operator.inputs[1]}.{column}")
        if other != f"{operator.inputs[1]}.{column}":
            message = f"{name} would be both {other} and {operator.inputs[1]}.{column}; write a new name for the right"
            yield Problem((*path, "columns"), f"{message} one: columns: {{right_{column}: right.{column}}}")


def key_type_problems(operator: Paired, left: OutputRows, right: OutputRows, path: Path) -> Iterator[Problem]:
    """Yield pairs of key columns whose values are not values of each other."""
    for index, (one, other) in enumerate(operator.key):
        types = left.type_of(one), right.type_of(other)
        if types[0] is None or types[1] is None or types[0].is_nested or types[1].is_nested:
            continue
        if key_family(types[0]) != key_family(types[1]):
            message = f"{one} is {types[0]}, {other} is {types[1]}: values of one are not values of the other"
            yield Problem(
                (*path, "key", index), f"{message}; CAST one of them in a `sql` operator before the {operator.kind}"
            )


def _right_alone_problems(operator: JoinOperator, left: OutputRows, right: OutputRows, path: Path) -> Iterator[Problem]:
    """Yield why left columns cannot show the key and the event time of a right row without a left one."""
    if left.shift_us != right.shift_us:
        message = "`how: right` needs two event times of one kind: of a window's rows it is the first moment after it"
        yield Problem((*path, "how"), f"{message}; exchange the inputs, and write how: left")
    assert left.event_time is not None and right.event_time is not None, "both are timed"
    for one, other in (*operator.key, (left.event_time, right.event_time)):
        types = left.type_of(one), right.type_of(other)
        if types[0] is not None and types[1] is not None and not _holds(types[0], types[1]):
            message = f"`how: right` shows {operator.inputs[1]}.{other} ({types[1]}) in {one} ({types[0]}), which does"
            yield Problem((*path, "how"), f"{message} not hold it; CAST {one} in a `sql` operator before the join")


def _holds(type_: ColumnType, values: ColumnType) -> bool:
    """Return whether a type holds all values of another one."""
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
    """Return what two types have in common that one holds the values of the other, equal ones in one place."""
    if type_.kind in INTEGERS:
        return ("integer",)
    if type_.kind in FLOATS:
        return ("float",)
    if type_.kind == "timestamp":
        return type_.kind, type_.utc, type_.unit == "ns"
    return type_.kind, type_.scale
