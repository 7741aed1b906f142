"""Output rows of the `asof` operator."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.jobspec.graph.rules.join import joined_columns, pair_column_problems, paired_problems
from milepost.jobspec.graph.rules.node import APPEND, OutputRows
from milepost.jobspec.job.operators.asof import AsofOperator
from milepost.language import Path, Problem


def asof_rows(operator: AsofOperator, inputs: Sequence[OutputRows], path: Path) -> OutputRows | list[Problem]:
    """Return the left columns and those of the version: append, with the left event time and no holdback."""
    left, right = inputs
    problems = paired_problems(operator, "an as-of join", inputs, path)
    known = left.columns_known and right.columns_known
    if known:
        problems += pair_column_problems(operator, left, right, path)
    if problems:
        return problems
    columns = joined_columns(operator, left, right)
    return OutputRows(columns, left.event_time, APPEND, (), columns_known=known, shift_us=left.shift_us)
