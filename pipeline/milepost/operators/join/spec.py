"""Spec of the `join` operator: rows of two inputs with the same key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from milepost.language import ColumnType, Many, Path, Problem, did_you_mean
from milepost.language.times import format_duration, in_us
from milepost.operators.base.operator_spec import EventTimeRule
from milepost.operators.base.origins import RowsLineage, union
from milepost.operators.base.output_rows import APPEND, OutputRows
from milepost.operators.base.row_trace import RowTrace, same_names
from milepost.operators.base.state_bounds import InputMode, StateBound, plus
from milepost.operators.base.two_inputs import (
    SIDES,
    KeyPairs,
    PairedOperator,
    joined_columns,
    joined_lineage,
    left_trace,
    pair_column_problems,
    paired_problems,
    right_trace,
)
from milepost.operators.join.condition import ComparisonText
from milepost.operators.join.row_bound import Bound, BoundText, RowBound, bound_text, constant_of, row_bound_of
from milepost.operators.join.rules_over_updates import output_over_updates
from milepost.operators.join.unmatched import LEFT_ALONE, RIGHT_UNMATCHED, unmatched_right_problems

_NEVER = timedelta(days=3650)
"""A bound of `within` from which on `how: anti` would practically never emit a row."""


def _ascending(bounds: tuple[Bound, ...]) -> tuple[Bound, ...]:
    if bounds and isinstance(bounds[0], RowBound):
        raise ValueError(
            f"the lower bound {bounds[0]} is only a column, so rows of the right input would never be deleted; add a "
            f'constant that bounds them: [["0s", "{bounds[0]}"], …]'
        )
    low, high = map(constant_of, bounds)
    if low is not None and high is not None and low > high:
        raise ValueError("the first bound is above the second, so no rows could match")
    return bounds


class JoinOperator(PairedOperator):
    """Joins rows of two inputs that have the same key.

    The output has the columns of the left row, then those of the right row without its key. A key that contains a null
    matches nothing. In unmatched rows the columns of the other side are null.

    With `within`, rows match if they are close in event time. Both inputs must be append, and so is the output, whose
    event time is that of the left row, unless the upper bound is a column. Late rows of an input go to
    `<uid>.late.<input>`. Unmatched rows are emitted once the watermark rules out a match, and immediately if their key
    contains a null.

    Without `within`, the output is the join of the rows that both inputs have now. Either may be append or updates. If
    both are append and `how` is inner or semi, the output is append. Otherwise it is a retract stream without a key,
    which operators can read. It has no event time.

    In an unmatched right row, the left key columns hold the key of the right row, and with `within` the left event time
    column holds its event time.

    Attributes:
        inputs: names of two sources or operators, the left one first. The same name twice is a self-join.
        key: columns that are equal in both inputs, each once; `{left: right}` if their names differ. []: every left row
            meets every right row, in one task; only without `within`.
        within: minimum and maximum of the right row's event time minus the left row's. Both may be negative. The
            maximum may be a left column less the left event time, `expires - at`: then the right row's event time is at
            most `expires`, a null matches nothing, and the output has no event time. Each may be a list of a constant
            and such a column, `[0s, "starts - at"]`: pairs satisfy both, and the constant bounds the state. null: rows
            match whatever their time.
        how: the rows to emit. inner: matching pairs. left, right: also the unmatched rows of that side. full: of both
            sides. semi: left rows with at least one match, once. anti: left rows without a match. semi and anti emit
            only the left columns.
        condition: comparisons that matching rows must satisfy, each of a left and a right column:
            `amount <= right.limit`, with `=`, `<>`, `<`, `<=`, `>`, `>=`, or `<=>`, which is true for two nulls. Only
            without `within`.
    """

    kind: Literal["join"]
    key: KeyPairs
    within: Annotated[Many[BoundText], Field(min_length=2, max_length=2), AfterValidator(_ascending)] | None = None
    how: Literal["inner", "left", "right", "full", "semi", "anti"] = "inner"
    condition: Many[ComparisonText] = ()

    @property
    def bounds(self) -> tuple[Bound, Bound]:
        """The lower and the upper bound of `within`. It must have them."""
        assert self.within is not None, "a join over updates has no bounds"
        low, high = self.within
        return low, high

    @property
    def constant_bounds(self) -> tuple[timedelta, timedelta | None]:
        """The constants of the bounds. The upper one may have none."""
        low, high = map(constant_of, self.bounds)
        assert low is not None, "only the upper bound may be nothing but a row's own"
        return low, high

    @property
    def row_bounds(self) -> dict[int, RowBound]:
        """The bounds that are columns: 0 for the lower one, 1 for the upper one."""
        bounds = map(row_bound_of, self.within or ())
        return {index: bound for index, bound in enumerate(bounds) if bound is not None}

    @property
    def has_late_rows(self) -> bool:
        return self.within is not None

    event_time_rule: ClassVar[EventTimeRule] = EventTimeRule(
        "with constant `within`, that of its left input; in an unmatched right row, that of the right row",
        "max(0, hi) of `within: [lo, hi]`; with `how: right` or `full` at least −lo",
        "event time < watermark, for either input: `<uid>.late.<input>`",
    )
    unavailable_keys: ClassVar[frozenset[str]] = frozenset({"keep", "ttl"})
    lost_state: ClassVar[str] = "the rows to match: their pairs with later rows will be missing"

    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return the left columns, then the right ones without the key: append, with the left event time.

        semi and anti have only the left columns. An unmatched row is emitted late: with `within: [lo, hi]`, a left row
        waits until the watermark is hi after it, and a right row until it is -lo after it. Without `within`, the rows
        are those of `output_over_updates`.
        """
        if self.within is None:
            return output_over_updates(self, self.how, self.condition, inputs, path)
        # within: [-5m, 1h], how: left   -> holdback 1h: an unmatched left row of 12:00 is emitted at watermark 13:00
        # within: [-2h, 1h], how: right  -> holdback 2h: an unmatched right row of 12:00 is emitted at watermark 14:00
        left, right = inputs
        problems = [*paired_problems(self, "a join", inputs, path), *_interval_problems(self, path)]
        problems += _row_bound_problems(self, left, right, path)
        if self.how in RIGHT_UNMATCHED and not problems:
            problems += _right_event_time_problems(self, left, right, path)
        if self.how in LEFT_ALONE and self.columns:
            message = f"`how: {self.how}` emits only the columns of the left input: there is nothing to rename"
            problems.append(Problem((*path, "columns"), message))
        elif self.how not in LEFT_ALONE and left.columns_known and right.columns_known:
            problems += pair_column_problems(self, left, right, path)
        if problems:
            return problems
        low, high = self.constant_bounds
        columns = left.columns if self.how in LEFT_ALONE else joined_columns(self, left, right)
        columns_known = left.columns_known and (right.columns_known or self.how in LEFT_ALONE)
        if high is None:  # a pair may be as old as the row allows
            return OutputRows(columns, None, APPEND, (), columns_known=columns_known)
        if self.how == "anti" and high >= _NEVER:
            wait = format_duration(high)
            message = f"`how: anti` emits a row once the watermark is {wait} after it, which is practically never"
            return [Problem((*path, "within"), f"{message}; choose a smaller upper bound")]
        return OutputRows(
            columns,
            left.event_time,
            APPEND,
            (),
            columns_known=columns_known,
            shift_us=left.shift_us,
            holdback_us=max(0, in_us(high), -in_us(low) if self.how in RIGHT_UNMATCHED else 0),
        )

    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        """Return the lineage of matching rows.

        The left key and event time columns may also hold the values of an unmatched right row.
        """
        left, right = inputs
        compared = [(one.left, one.right) for one in self.condition]
        pairs = [*self.key, *([(times[0], times[1])] if self.within is not None else compared)]
        bounds = [(bound.column, times[1]) for bound in self.row_bounds.values()]
        joined = joined_lineage(self, inputs, [*pairs, *bounds])
        if self.how in LEFT_ALONE:
            return RowsLineage(left.columns, joined.rows, left.any_column)
        if self.how in RIGHT_UNMATCHED and joined.columns:
            shown = pairs if self.within is not None else self.key
            held = {name: union(left.of(name), right.of(other)) for name, other in shown if name is not None}
            return RowsLineage({**joined.columns, **held}, joined.rows)
        return joined

    def row_traces(self, inputs: Sequence[Sequence[str]], times: Sequence[str | None]) -> tuple[RowTrace, ...]:
        """Return the traces to both inputs.

        In an unmatched right row, only the left key and event time columns have values, and they are its own.
        """
        left, right = left_trace(inputs[0]), right_trace(self, inputs[1])
        if self.how in LEFT_ALONE:
            return (left, RowTrace(1, right.equal))
        if self.how in RIGHT_UNMATCHED:
            left = RowTrace(0, same_names(name for name, _ in self.key), left.equal)
        return (left, right)

    def signature(self, *, retracts: bool) -> dict[str, Any]:
        # State holds the rows that can still match within these bounds. A signature without `how` means inner.
        how = {} if self.how == "inner" else {"how": self.how}
        if self.within is None:
            condition = [one.text for one in self.condition]
            return how | ({"condition": condition} if condition else {})
        return {"within": list(map(bound_text, self.bounds)), **how}

    def state_bounds(self) -> tuple[StateBound, ...]:
        if self.within is None:
            return self.bounds_by_input([InputMode(name, is_append=True) for name in self.inputs])
        low, high = self.constant_bounds
        ends = [] if high is None else [f"event time{plus(high)}"]
        ends += [self.row_bounds[1].column] if 1 in self.row_bounds else []
        until = f"the watermark passes {' or '.join(ends)}"
        unmatched = " without a match so far" if self.how in LEFT_ALONE else ""
        return (
            StateBound("left", f"rows of {self.inputs[0]}{unmatched}", until),
            StateBound("right", f"rows of {self.inputs[1]}", f"the watermark passes event time{plus(-low)}"),
        )

    def bounds_by_input(self, inputs: Sequence[InputMode]) -> tuple[StateBound, ...]:
        if self.within is not None:
            return self.state_bounds()
        return tuple(
            StateBound(side, f"rows of {input_.name}", grows_with=input_.growth)
            for side, input_ in zip(SIDES, inputs, strict=True)
        )

    def state_columns(self) -> list[tuple[str, list[str]]]:
        bounds = [bound.column for bound in self.row_bounds.values()]
        compared = [*(one.left for one in self.condition), *bounds], [one.right for one in self.condition]
        return [
            (side, list(dict.fromkeys([*(pair[index] for pair in self.key), *compared[index]])))
            for index, side in enumerate(SIDES)
        ]


def _interval_problems(operator: JoinOperator, path: Path) -> Iterator[Problem]:
    """Yield why keys of a join over updates do not fit one with `within`."""
    if operator.condition:
        message = "`condition` is only for a join without `within`; filter the pairs in a `sql` operator after the join"
        yield Problem((*path, "condition"), message)
    if not operator.key:
        message = (
            "expected at least 1 column, got 0; to put all rows under one key, add a constant column, 1 AS all_rows, "
            "in an upstream `sql` operator of each input"
        )
        yield Problem((*path, "key"), message)


def _row_bound_problems(operator: JoinOperator, left: OutputRows, right: OutputRows, path: Path) -> Iterator[Problem]:
    """Yield why a left column cannot be a bound of its row."""
    name, _ = operator.inputs
    for index, bound in operator.row_bounds.items():
        at, type_ = (*path, "within", index), left.type_of(bound.column)
        if left.event_time is not None and bound.event_time != left.event_time:
            message = f"expected `{bound.column} - {left.event_time}`, as {left.event_time} is the event time of {name}"
            yield Problem(at, f"{message}, got `{bound}`")
        if left.columns_known and bound.column not in left.columns:
            yield Problem(at, f"{name} has no column {bound.column}; {did_you_mean(bound.column, left.columns)}")
        elif type_ is not None and type_.kind != "timestamp":
            yield Problem(at, f"{bound.column} is {type_}, expected a timestamp")
        if left.shift_us or right.shift_us:
            message = f"a bound of the row, `{bound}`, is not available in this version over rows of a window"
            yield Problem(at, f"{message}; write a constant")


def _right_event_time_problems(
    operator: JoinOperator, left: OutputRows, right: OutputRows, path: Path
) -> Iterator[Problem]:
    """Yield why the left columns cannot hold the key and event time of an unmatched right row."""
    if left.shift_us != right.shift_us:
        message = f"`how: {operator.how}` cannot combine the event time of a window, which is its exclusive end, with "
        hint = "another; swap the inputs and write how: left" if operator.how == "right" else "another"
        yield Problem((*path, "how"), f"{message}{hint}")
    assert left.event_time is not None and right.event_time is not None, "both have an event time"
    pairs = [*operator.key, (left.event_time, right.event_time)]
    yield from unmatched_right_problems(operator, operator.how, pairs, (left, right), path)
