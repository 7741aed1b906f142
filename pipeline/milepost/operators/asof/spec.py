"""Spec of the `asof` operator: join rows with the current version of their key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from milepost.language import ColumnType, Path, Problem
from milepost.operators.base.operator_spec import NOTHING, EventTimeRule
from milepost.operators.base.origins import RowsLineage
from milepost.operators.base.output_rows import APPEND, OutputRows
from milepost.operators.base.row_trace import RowTrace
from milepost.operators.base.state_bounds import StateBound, column_list
from milepost.operators.base.two_inputs import (
    PairedOperator,
    joined_columns,
    joined_lineage,
    left_trace,
    pair_column_problems,
    paired_problems,
    right_trace,
)


class AsofOperator(PairedOperator):
    """Joins each left row with the version of its key that is current at its event time.

    The right input is a change feed. Each of its rows is a version that is valid from its event time until that of the
    next version of the same key. Of two versions with the same event time the greater one wins, comparing all columns
    in the order of the input. A left row is emitted when the watermark of both inputs has passed it. The output has
    the columns of the left row, then those of the version without its key; its event time is that of the left row.
    Late rows of an input go to `<uid>.late.<input>`. A key that contains a null has no version.

    Attributes:
        how: inner: only left rows that have a version. left: all left rows, with nulls where there is no version.
    """

    kind: Literal["asof"]
    how: Literal["inner", "left"] = "inner"

    event_time_rule: ClassVar[EventTimeRule] = EventTimeRule(
        "that of its left input", NOTHING, "event time < watermark, for either input: `<uid>.late.<input>`"
    )
    lost_state: ClassVar[str] = "the rows to match: later rows will not match them"

    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return the left columns and those of the version: append, with the left event time and no holdback."""
        left, right = inputs
        problems = paired_problems(self, "an as-of join", inputs, path)
        known = left.columns_known and right.columns_known
        if known:
            problems += pair_column_problems(self, left, right, path)
        if problems:
            return problems
        columns = joined_columns(self, left, right)
        return OutputRows(columns, left.event_time, APPEND, (), columns_known=known, shift_us=left.shift_us)

    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        return joined_lineage(self, inputs, [*self.key, (times[0], times[1])])

    def row_traces(self, inputs: Sequence[Sequence[str]], times: Sequence[str | None]) -> tuple[RowTrace, ...]:
        return (left_trace(inputs[0]), right_trace(self, inputs[1]))

    def signature(self, *, retracts: bool) -> dict[str, Any]:
        return {}

    def state_bounds(self) -> tuple[StateBound, ...]:
        rows, versions = self.inputs
        key = column_list([right for _, right in self.key])
        return (
            StateBound("left", f"rows of {rows}", "the watermark passes event time"),
            StateBound(
                "right",
                f"the newest row of {versions} per {key}, and older ones until the watermark reaches event time of the "
                "next one",
                grows_with=f"distinct {key}",
            ),
        )
