"""Process rules derive the rows that a user's class gives from what it declares and from its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from milepost.spec.graph.rules.join import key_family
from milepost.spec.graph.rules.node import APPEND, UPDATES, OutputRows, append_problems, key_problems
from milepost.spec.job.operators.process import ProcessOperator
from milepost.spec.values.names import did_you_mean
from milepost.spec.values.problems import Path, Problem
from milepost.spec.values.types import ColumnType


def process_rows(
    operator: ProcessOperator, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
) -> OutputRows | list[Problem]:
    """Return what the class declares: append, or with an output key updates, which have an event time only within it.

    The event time is what all inputs call so, only under its own name and as a timestamp.

    Args:
        declared: its `output`; None = the class was not loaded.
    """
    problems = []
    for position, (name, rows) in enumerate(zip(operator.inputs, inputs, strict=True)):
        problems += append_problems(operator.kind, name, rows, path, position)
        problems += key_problems(operator.key, name, rows, path)
    problems += _key_types(operator, inputs, path)
    problems += _output_key_problems(operator, inputs, path, declared)
    if problems:
        return problems
    output_key = operator.output_key or ()
    kind = UPDATES if output_key else APPEND
    times = {(rows.event_time, rows.shift_us) for rows in inputs}
    event_time, shift_us = times.pop() if len(times) == 1 else (None, 0)
    if output_key and event_time not in output_key:
        event_time = None
    if declared is None:
        return OutputRows({}, event_time, kind, output_key, known=False, shift_us=shift_us, deletes=bool(output_key))
    timed = (type_ := declared.get(event_time or "")) is not None and type_.kind == "timestamp"
    time = event_time if timed else None
    return OutputRows(dict(declared), time, kind, output_key, shift_us=shift_us, deletes=bool(output_key))


def _output_key_problems(
    operator: ProcessOperator, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
) -> Iterator[Problem]:
    """Yield why a row of the output could not be told by its key: or two subtasks might have rows of one."""
    if operator.output_key is None:
        return
    for column in operator.key:
        if column not in operator.output_key:
            message = f"{column} is missing: with the operator's `key` in it, one subtask has all rows of an output key"
            yield Problem((*path, "output_key"), message)
    for index, column in enumerate(operator.output_key):
        if declared is None:
            return
        type_ = declared.get(column)
        given = [rows.type_of(column) for rows in inputs] if column in operator.key else []
        if type_ is None:
            message = f"the class's `output` has no column {column}; {did_you_mean(column, declared)}"
        elif type_.is_nested:
            message = f"{column} is {type_}; a key is made of single values, no lists or structs"
        elif any(one is not None and not _tells_apart(type_, one) for one in given):
            message = f"{column} is {type_} in the class's `output`, {next(filter(None, given))} in its input"
        else:
            continue
        yield Problem((*path, "output_key", index), message)


def _tells_apart(type_: ColumnType, key: ColumnType) -> bool:
    """Return whether an output has another value for each key; integers that do not fit are refused as they come."""
    return key_family(type_) == key_family(key) and (key.kind, type_.kind) != ("float64", "float32")


def _key_types(operator: ProcessOperator, inputs: Sequence[OutputRows], path: Path) -> Iterator[Problem]:
    """Yield key columns whose values in one input are no values of another's."""
    for index, column in enumerate(operator.key):
        first, first_type = None, None
        for name, rows in zip(operator.inputs, inputs, strict=True):
            type_ = rows.type_of(column)
            if type_ is None or type_.is_nested:
                continue
            if first_type is None:
                first, first_type = name, type_
            elif key_family(type_) != key_family(first_type):
                message = f"{column} is {first_type} in {first}, {type_} in {name}: values of one are not values of the"
                yield Problem((*path, "key", index), f"{message} other; CAST one of them in a `sql` operator before")
                break
