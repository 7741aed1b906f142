"""Spec of the `materialize` operator: give rows that are inserted and retracted a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from milepost.language import ColumnType, Path, Problem
from milepost.operators.base.operator_spec import EventTimeRule, KeyedOperator
from milepost.operators.base.origins import RowsLineage
from milepost.operators.base.output_rows import UPDATES, OutputRows, key_problems
from milepost.operators.base.row_trace import RowTrace, same_names
from milepost.operators.base.state_bounds import StateBound, bound_per_key


class MaterializeOperator(KeyedOperator):
    """The rows of its input as updates by another key, which must be unique.

    Use it to publish rows that are retracted and have no key, such as those of a join over updates, or rows whose key
    routes them to another subtask than the key of the table. While rows are in flight, a key may have two rows. The
    greatest is then shown, in ascending order of all columns. If a key has two rows and nothing is in flight, the epoch
    fails.

    Attributes:
        inputs: name of one operator. Its rows must be updates.
        key: key columns of the output, each once. No two rows of the input may have the same key.
    """

    kind: Literal["materialize"]

    event_time_rule: ClassVar[EventTimeRule] = EventTimeRule("none")
    lost_state: ClassVar[str] = "the current row of each key: a retraction of such a row would be refused"
    publishes_state: ClassVar[bool] = True

    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return the input's columns: updates by the key, without event time."""
        (rows,), (name,) = inputs, self.inputs
        problems = key_problems(self.key, name, rows, path)
        if not rows.retracts:
            message = (
                f"the rows of {name} are append, so a key with two rows would never become unique; use `kind: latest` "
                "for the newest row of each key"
            )
            problems.append(Problem((*path, "inputs", 0), message))
        if problems:
            return problems
        deletes = rows.deletes or not set(self.key) <= set(rows.key)
        return OutputRows(rows.columns, None, UPDATES, self.key, columns_known=rows.columns_known, deletes=deletes)

    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        (rows,) = inputs
        return rows

    def row_traces(self, inputs: Sequence[Sequence[str]], times: Sequence[str | None]) -> tuple[RowTrace, ...]:
        return (RowTrace(0, same_names(self.key), same_names(inputs[0])),)

    def signature(self, *, retracts: bool) -> dict[str, Any]:
        return {}

    def state_bounds(self) -> tuple[StateBound, ...]:
        return (bound_per_key("a row", self.key),)
