"""Output rows of the `lookup` operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from milepost.jobspec.graph.rules.join import joined_columns, key_type_problems, pair_column_problems
from milepost.jobspec.graph.rules.node import APPEND, OutputRows, append_problems, key_problems
from milepost.jobspec.job.operators.lookup import LookupOperator
from milepost.language import Path, Problem, did_you_mean


def lookup_rows(operator: LookupOperator, inputs: Sequence[OutputRows], path: Path) -> OutputRows | list[Problem]:
    """Return the input's columns and those of the static source: append, with the input's event time and key."""
    left, right = inputs
    problems = append_problems(operator.kind, operator.inputs[0], left, path)
    for position, (name, rows) in enumerate(zip(operator.inputs, inputs, strict=True)):
        problems += key_problems(tuple(pair[position] for pair in operator.key), name, rows, path)
    problems += [*key_type_problems(operator, left, right, path), *_order_problems(operator, right, path)]
    if left.columns_known:
        problems += pair_column_problems(operator, left, right, path)
    if problems:
        return problems
    return OutputRows(
        joined_columns(operator, left, right),
        left.event_time,
        APPEND,
        left.key,
        columns_known=left.columns_known,
        shift_us=left.shift_us,
    )


def _order_problems(operator: LookupOperator, right: OutputRows, path: Path) -> Iterator[Problem]:
    for index, (column, _) in enumerate(operator.order_by):
        if column not in right.columns:
            message = f"{operator.dimension} has no column {column}; {did_you_mean(column, right.columns)}"
            yield Problem((*path, "order_by", index), message)
