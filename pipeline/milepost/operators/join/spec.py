"""Spec of the `join` operator: rows of two inputs that are close in event time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from milepost.language import FLOATS, INTEGERS, ColumnType, Many, Path, Problem, SignedDuration
from milepost.language.times import format_duration, format_signed_duration, in_us
from milepost.operators.base.key_types import key_family
from milepost.operators.base.operator_spec import EventTimeRule
from milepost.operators.base.origins import RowsLineage, union
from milepost.operators.base.output_rows import APPEND, OutputRows
from milepost.operators.base.state_bounds import StateBound, plus
from milepost.operators.base.two_inputs import (
    PairedOperator,
    joined_columns,
    joined_lineage,
    pair_column_problems,
    paired_problems,
)

_NEVER = timedelta(days=3650)
"""A bound of `within` from which on `how: anti` would practically never emit a row."""

LEFT_ALONE = ("semi", "anti")
"""Values of `how` that emit only left columns."""


def _ascending(bounds: tuple[timedelta, ...]) -> tuple[timedelta, ...]:
    if len(bounds) == 2 and bounds[0] > bounds[1]:
        raise ValueError("the first bound is above the second, so no rows could match")
    return bounds


class JoinOperator(PairedOperator):
    """Joins rows of two inputs that have the same key and are close in event time.

    The output has the columns of the left row, then those of the right row without its key; its event time is that of
    the left row. Late rows of an input go to `<uid>.late.<input>`. A key that contains a null matches nothing.

    `left`, `right` and `anti` emit an unmatched row once the watermark rules out a match, and at once if its key
    contains a null. The columns of the other side are then null; with `how: right`, the left key and event time columns
    hold the values of the right row.

    Attributes:
        within: minimum and maximum of the right row's event time minus the left row's. Both may be negative.
        how: the rows to emit. inner: matching pairs. left, right: also the unmatched rows of that side. semi: left rows
            with at least one match, once. anti: left rows without a match. semi and anti emit only the left columns.
    """

    kind: Literal["join"]
    within: Annotated[Many[SignedDuration], Field(min_length=2, max_length=2), AfterValidator(_ascending)]
    how: Literal["inner", "left", "right", "semi", "anti"] = "inner"

    @property
    def bounds(self) -> tuple[timedelta, timedelta]:
        """The lower and the upper bound of `within`."""
        low, high = self.within
        return low, high

    event_time_rule: ClassVar[EventTimeRule] = EventTimeRule(
        "that of its left input; with `how: right`, that of the right row if no left row matches",
        "max(0, hi) of `within: [lo, hi]`; with `how: right` at least −lo",
        "event time < stamp, for either input: `<uid>.late.<input>`",
    )
    unavailable_keys: ClassVar[frozenset[str]] = frozenset({"keep"})
    unavailable_values: ClassVar[Mapping[str, frozenset[str]]] = {"how": frozenset({"full"})}
    lost_state: ClassVar[str] = "the rows that wait for a match: their pairs will be missing"

    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return the left columns, then the right ones without the key: append, with the left event time.

        semi and anti have only the left columns. An unmatched row is emitted late: with `within: [lo, hi]`, a left row
        waits until the watermark is hi after it, and a right row until it is -lo after it.
        """
        # within: [-5m, 1h], how: left   -> holdback 1h: an unmatched left row of 12:00 is emitted at watermark 13:00
        # within: [-2h, 1h], how: right  -> holdback 2h: an unmatched right row of 12:00 is emitted at watermark 14:00
        left, right = inputs
        problems = paired_problems(self, "a join", inputs, path)
        if self.how == "right" and not problems:
            problems += _right_alone_problems(self, left, right, path)
        if self.how in LEFT_ALONE and self.columns:
            message = f"`how: {self.how}` emits only the columns of the left input: there is nothing to rename"
            problems.append(Problem((*path, "columns"), message))
        elif self.how not in LEFT_ALONE and left.columns_known and right.columns_known:
            problems += pair_column_problems(self, left, right, path)
        if problems:
            return problems
        low, high = map(in_us, self.bounds)
        if self.how == "anti" and high >= in_us(_NEVER):
            wait = format_duration(self.bounds[1])
            message = f"`how: anti` emits a row once the watermark is {wait} after it, which is practically never"
            return [Problem((*path, "within"), f"{message}; choose a smaller upper bound")]
        return OutputRows(
            left.columns if self.how in LEFT_ALONE else joined_columns(self, left, right),
            left.event_time,
            APPEND,
            (),
            columns_known=left.columns_known and (right.columns_known or self.how in LEFT_ALONE),
            shift_us=left.shift_us,
            holdback_us=max(0, high, -low if self.how == "right" else 0),
        )

    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        """Return the lineage of matching rows.

        With `how: right`, the left key and event time columns may also hold the values of an unmatched right row.
        """
        left, right = inputs
        pairs = [*self.key, (times[0], times[1])]
        joined = joined_lineage(self, inputs, pairs)
        if self.how in LEFT_ALONE:
            return RowsLineage(left.columns, joined.rows, left.any_column)
        if self.how == "right" and joined.columns:
            held = {name: union(left.of(name), right.of(other)) for name, other in pairs if name is not None}
            return RowsLineage({**joined.columns, **held}, joined.rows)
        return joined

    def signature(self, *, retracts: bool) -> dict[str, Any]:
        # State holds the rows that can still match within these bounds. A signature without `how` means inner.
        how = {} if self.how == "inner" else {"how": self.how}
        return {"within": list(map(format_signed_duration, self.bounds)), **how}

    def state_bounds(self) -> tuple[StateBound, ...]:
        low, high = self.bounds
        unmatched = " without a match so far" if self.how in LEFT_ALONE else ""
        return (
            StateBound("left", f"rows of {self.inputs[0]}{unmatched}", f"event time{plus(high)} < W"),
            StateBound("right", f"rows of {self.inputs[1]}", f"event time{plus(-low)} < W"),
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
