"""Spec of the `deduplicate` operator: the first row of each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from milepost.language import ColumnType, Path, PositiveDuration, Problem
from milepost.language.times import format_duration
from milepost.operators.base.operator_spec import FOR_EVER, NOTHING, REMEMBERS, EventTimeRule, KeyedOperator
from milepost.operators.base.origins import FILTERED, RowsLineage
from milepost.operators.base.output_rows import APPEND, OutputRows, append_problems, event_time_problems, key_problems
from milepost.operators.base.row_trace import RowTrace, same_names
from milepost.operators.base.state_bounds import StateBound, bound_per_key, column_list, plus


class DeduplicateOperator(KeyedOperator):
    """The first row of each key.

    Attributes:
        ttl: how long a key is remembered, in event time, above 0s. Rows older than that are late and go to
            `<uid>.late`. null: keys are remembered permanently, and no row is late.
    """

    kind: Literal["deduplicate"]
    ttl: PositiveDuration | None = None

    event_time_rule: ClassVar[EventTimeRule] = EventTimeRule(
        "that of its input", NOTHING, "with a `ttl`: event time < watermark − ttl"
    )
    lifetime_key: ClassVar[str] = "ttl"
    can_be_bootstrapped: ClassVar[bool] = True
    lost_state: ClassVar[str] = "which rows were seen: duplicates will pass"

    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return the input's columns: append, with its event time."""
        (rows,), (name,) = inputs, self.inputs
        problems = append_problems(self.kind, name, rows, path) + key_problems(self.key, name, rows, path)
        if self.ttl is not None:
            problems += event_time_problems("a ttl", name, rows, path)
        if problems:
            return problems
        return OutputRows(
            rows.columns,
            rows.event_time,
            APPEND,
            self.key,
            columns_known=rows.columns_known,
            shift_us=rows.shift_us,
            repeats_keys=self.ttl is not None,  # a forgotten key passes again
        )

    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        time = times[0] if self.ttl is not None else None
        return inputs[0].decided_by(inputs[0].by(FILTERED, (*self.key, time)))

    def row_traces(self, inputs: Sequence[Sequence[str]], times: Sequence[str | None]) -> tuple[RowTrace, ...]:
        return (RowTrace(0, same_names(self.key), same_names(inputs[0])),)

    @property
    def has_late_rows(self) -> bool:
        return self.ttl is not None

    @property
    def uses_watermark(self) -> bool:
        return True  # also without a ttl: recorded signatures have the sources

    def signature(self, *, retracts: bool) -> dict[str, Any]:
        return {REMEMBERS: FOR_EVER if self.ttl is None else format_duration(self.ttl)}

    def state_bounds(self) -> tuple[StateBound, ...]:
        if self.ttl is None:
            return (bound_per_key("a key", self.key),)
        return (
            StateBound("", f"a key per {column_list(self.key)}", f"the watermark passes event time{plus(self.ttl)}"),
        )
