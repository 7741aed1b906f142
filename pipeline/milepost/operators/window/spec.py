"""Spec of the `window` operator: aggregate per key and event-time window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

from milepost.language import ColumnType, Duration, Path, PreciseDuration, Problem, SpecModel
from milepost.language.times import (
    MOST_DAYS,
    Calendar,
    format_duration,
    in_us,
    parse_calendar,
    parse_duration,
    zone_data,
    zone_digest,
)
from milepost.operators.base.aggregate_calls import (
    aggregate_columns,
    aggregate_conditions,
    aggregate_lineage,
    aggregate_problems,
    aggregated_columns,
    recorded_columns,
    value_tables,
)
from milepost.operators.base.edges import WINDOW_COLUMNS, WINDOW_END, WINDOW_START
from milepost.operators.base.operator_spec import REMEMBERS, Aggregates, AnyColumns, EventTimeRule, KeyedOperator
from milepost.operators.base.origins import GROUPED, MADE_OF, WINDOWED, Origins, RowsLineage, union
from milepost.operators.base.output_rows import (
    APPEND,
    UPDATES,
    Columns,
    OutputRows,
    append_problems,
    event_time_problems,
    key_problems,
)
from milepost.operators.base.row_trace import RowTrace, TimeSpan, same_names
from milepost.operators.base.state_bounds import OUTPUT_TABLE, StateBound, column_list, plus

LAST_MOMENT_US = -1
"""Offset from the end of a window, which is exclusive, to its last microsecond."""

_WINDOW_TIME = ColumnType("timestamp", unit="us", utc=True)

MOST_PANES = 1_000
"""Maximum panes per window: as many partial results are merged when the window fires."""

_DAY = timedelta(days=1)
_CLOCK_CHANGE = timedelta(hours=1)


def _length(text: object) -> timedelta | Calendar:
    calendar = text if isinstance(text, Calendar) else parse_calendar(text)
    if calendar is not None:
        return calendar
    length = parse_duration(text)
    if not length:
        raise ValueError("expected a duration above 0s")
    return length


def length_text(length: timedelta | Calendar) -> str:
    """Return the canonical text of a window length."""
    return str(length) if isinstance(length, Calendar) else format_duration(length)


def _zone(name: str) -> str:
    zone_data(name)
    return name


WindowLength = Annotated[
    timedelta | Calendar,
    BeforeValidator(_length),
    PlainSerializer(length_text, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^\d{1,9}(ms|s|m|h|d|w|mo)$", "description": "30m 1d 1w 3mo"}),
]
WindowZone = Annotated[str, AfterValidator(_zone), WithJsonSchema({"type": "string"})]


class SlidingWindows(SpecModel):
    """Overlapping windows of one size. One begins at each multiple of `slide`, counted from 1970-01-01T00:00Z.

    Attributes:
        size: length of a window: a multiple of `slide`, 2 to 1,000 times as long, in weeks or months if `slide` is.
        slide: distance between the starts of two windows: a duration above 0s, or weeks that begin on Monday (`1w`), or
            months (`1mo`).
    """

    size: WindowLength
    slide: WindowLength

    @property
    def panes(self) -> int:
        """Number of slides per window."""
        return _panes_and_rest(self)[0]


def _panes_and_rest(windows: SlidingWindows) -> tuple[int, timedelta | int]:
    """Return `size` divided by `slide`, and the remainder. Raises ValueError if their units cannot be compared."""
    size, slide = windows.size, windows.slide
    if isinstance(size, Calendar) and isinstance(slide, Calendar) and size.unit == slide.unit:
        return divmod(size.count, slide.count)
    if isinstance(size, timedelta) and isinstance(slide, timedelta):
        return divmod(size, slide)
    lengths = f"size: {length_text(size)} and slide: {length_text(slide)}"
    raise ValueError(f"{lengths} must both be durations, both weeks or both months; a week can be written as 7d")


class SessionWindows(SpecModel):
    """Windows of rows of one key, separated by gaps.

    Attributes:
        gap: a row at least this long after the previous one begins a new session. Above 0s. It may have microseconds:
            with `1800000001us`, rows exactly 30 minutes apart are in one session, as in Spark's `session_window`.
    """

    gap: PreciseDuration


def _whole_panes(windows: SlidingWindows | None) -> SlidingWindows | None:
    if windows is None:
        return None
    size, slide = length_text(windows.size), length_text(windows.slide)
    panes, rest = _panes_and_rest(windows)
    if rest:
        raise ValueError(f"size: {size} is not a multiple of slide: {slide}")
    if panes == 1:
        raise ValueError(f"windows of {size} every {slide} do not overlap: write tumbling: {size}")
    if panes > MOST_PANES:
        raise ValueError(f"size: {size} is {panes} times slide: {slide}; at most {MOST_PANES} times is available")
    return windows


class Windows(SpecModel):
    """The windows that a row belongs to: exactly one of tumbling, sliding and session.

    Attributes:
        tumbling: adjacent windows: their length, a duration above 0s, aligned to 1970-01-01T00:00Z; or weeks that begin
            on Monday (`1w`), or months (`1mo`).
        timezone: time zone of whole days, weeks or months, such as Europe/Berlin. A day has 23 or 25 hours when clocks
            change. null: UTC.
        offset: how much later windows begin than at the aligned time or the local midnight. Below their length, or for
            sliding windows below `slide`. null: 0s.
        sliding: overlapping windows of one size.
        session: windows of rows separated by gaps.
    """

    tumbling: WindowLength | None = None
    timezone: WindowZone | None = None
    offset: Duration | None = None
    sliding: Annotated[SlidingWindows | None, AfterValidator(_whole_panes)] = None
    session: SessionWindows | None = None

    @property
    def calendar(self) -> Calendar | None:
        """The days, weeks or months from the start of one window to the next. None: the step is a fixed duration."""
        step = self.step
        if isinstance(step, Calendar):
            return step
        if self.timezone is None or step is None or step % _DAY:
            return None
        return Calendar(step // _DAY, "d")

    @property
    def longest(self) -> timedelta:
        """How long a window is at most. Of a session, how long after its start a row surely belongs to it."""
        if self.session is not None:
            return self.session.gap
        size = self.tumbling if self.sliding is None else self.sliding.size
        assert size is not None
        length = size.longest if isinstance(size, Calendar) else size
        return length if self.timezone is None else length + _CLOCK_CHANGE

    @property
    def step(self) -> timedelta | Calendar | None:
        """Distance between the starts of two windows. None for sessions, which begin with a row."""
        return self.tumbling if self.sliding is None else self.sliding.slide


def _one_kind(windows: Windows) -> Windows:
    given = [name for name in ("tumbling", "sliding", "session") if getattr(windows, name) is not None]
    if len(given) != 1:
        raise ValueError(f"expected one of tumbling, sliding and session, got {' and '.join(given) or 'none'}")
    for key in ("timezone", "offset"):
        if windows.session is not None and getattr(windows, key) is not None:
            raise ValueError(f"`{key}` applies to tumbling and sliding windows: a session begins with its first row")
    _check_calendar(windows)
    return windows


def _check_calendar(windows: Windows) -> None:
    step, offset = windows.step, windows.offset
    if step is None:
        return
    name = "tumbling" if windows.sliding is None else "slide"
    if windows.timezone is not None and windows.calendar is None:
        raise ValueError(f"timezone needs whole days, weeks or months, got {name}: {length_text(step)}")
    name, size = ("tumbling", step) if windows.sliding is None else ("size", windows.sliding.size)
    if windows.timezone is not None and isinstance(size, timedelta) and size.days > MOST_DAYS:
        raise ValueError(f"{name}: expected at most {MOST_DAYS}d with a time zone, got {format_duration(size)}")
    shortest = step.shortest if isinstance(step, Calendar) else step
    if offset is not None and offset >= shortest:
        of = "the length" if windows.sliding is None else "slide"
        raise ValueError(f"offset: {format_duration(offset)} is not below {of}, {format_duration(shortest)}")


class WindowOperator(KeyedOperator):
    """Aggregates per key and event-time window.

    The output has the columns window_start and window_end. Late rows go to `<uid>.late`.

    Attributes:
        inputs: name of one source or operator. Its rows must be append and have an event time.
        key: key columns, each once. []: windows over all rows, in one task.
        window: the windows that a row belongs to.
        aggregates: output column -> aggregate call, as for the aggregate operator.
        allowed_lateness: how long after its end a window still accepts rows. 0s: a window is emitted once and is final
            (append). More: it is emitted again in each epoch that adds rows to it (updates). A session that was merged
            into another one, or that is no longer complete, is deleted.
        emit: when to emit a window. final: when it is complete. early: in each epoch that adds rows to it (updates),
            and when it is complete.
    """

    kind: Literal["window"]
    key: AnyColumns
    window: Annotated[Windows, AfterValidator(_one_kind)]
    aggregates: Aggregates
    allowed_lateness: Duration = timedelta(0)
    emit: Literal["final", "early"] = "final"

    @property
    def updates(self) -> bool:
        """Whether a window may be emitted again, replacing the earlier result."""
        return bool(self.allowed_lateness) or self.emit == "early"

    event_time_rule: ClassVar[EventTimeRule] = EventTimeRule(
        "`window_end` minus 1 µs, the last microsecond of the window; none for sessions that may be emitted again",
        "`allowed_lateness`",
        "window_end + allowed_lateness ≤ watermark, for the last window of the row; for sessions event time < "
        "watermark − allowed_lateness",
    )
    lifetime_key: ClassVar[str] = "allowed_lateness"
    lost_state: ClassVar[str] = "the rows of windows that have not fired: those windows will lack them"

    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return key, window and aggregates: append, or updates with allowed lateness or `emit: early`.

        Updates of sessions are keyed by key and start, because a session may grow and change its end. So they have no
        event time.
        """
        (rows,), (name,) = inputs, self.inputs
        problems = append_problems(self.kind, name, rows, path) or event_time_problems("a window", name, rows, path)
        problems += key_problems(self.key, name, rows, path)
        problems += aggregate_problems(self.aggregates, name, rows, path)
        if problems:
            return problems
        columns: Columns = {column: rows.type_of(column) for column in self.key}
        columns |= dict.fromkeys(WINDOW_COLUMNS, _WINDOW_TIME)
        columns |= aggregate_columns(self.aggregates, rows)
        key, holdback_us = (*self.key, *WINDOW_COLUMNS), in_us(self.allowed_lateness)
        if self.updates and self.window.session is not None:
            return OutputRows(columns, None, UPDATES, key[:-1], holdback_us=holdback_us, deletes=True)
        kind = UPDATES if self.updates else APPEND
        return OutputRows(columns, WINDOW_END, kind, key, shift_us=LAST_MOMENT_US, holdback_us=holdback_us)

    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        (rows,), (time,) = inputs, times
        columns: dict[str, Origins] = {name: rows.of(name) for name in self.key}
        columns |= dict.fromkeys(WINDOW_COLUMNS, rows.by(MADE_OF, (time,)))
        columns |= aggregate_lineage(self.aggregates, self.inputs[0], rows, time)
        return RowsLineage(columns, union(rows.rows, rows.by(GROUPED, self.key), rows.by(WINDOWED, (time,))))

    def row_traces(self, inputs: Sequence[Sequence[str]], times: Sequence[str | None]) -> tuple[RowTrace, ...]:
        (time,) = times
        is_session = self.window.session is not None
        if time is None:
            return (RowTrace(0, same_names(self.key)),)
        span = TimeSpan(time, WINDOW_START, WINDOW_END, self.window.longest, is_session, self.allowed_lateness)
        return (RowTrace(0, same_names(self.key), span=span),)

    @property
    def named_columns(self) -> tuple[str, ...]:
        return (*self.key, *WINDOW_COLUMNS, *self.aggregates)

    @property
    def has_late_rows(self) -> bool:
        return True

    @property
    def emits_early(self) -> bool:
        return self.emit == "early"

    @property
    def conditions(self) -> tuple[tuple[str, str], ...]:
        return aggregate_conditions(self.aggregates)

    def needed_columns(self, columns: Sequence[str], event_time: str | None) -> frozenset[str] | None:
        return aggregated_columns(self.aggregates, self.key, event_time).union(filter(None, [event_time]))

    @property
    def update_calls(self) -> dict[str, str]:
        return {name: str(call) for name, call in self.aggregates.items()}

    def state_columns(self) -> list[tuple[str, list[str]]]:
        return recorded_columns(self.aggregates, self.key)

    def signature(self, *, retracts: bool) -> dict[str, Any]:
        signature: dict[str, Any] = {"window": self.window.model_dump(mode="json", exclude_none=True)}
        if self.window.timezone is not None:
            # With other rules of the time zone, windows would begin at other times.
            signature["time zone data"] = zone_digest(self.window.timezone)
        return signature | {REMEMBERS: format_duration(self.allowed_lateness)}

    def state_bounds(self) -> tuple[StateBound, ...]:
        windows, lateness = self.window, plus(self.allowed_lateness)
        per_key = f" and {column_list(self.key)}" if self.key else ""
        if windows.session is not None:
            until = f"the watermark reaches its last event time{plus(windows.session.gap)}{lateness}"
            return self._bounds_per(f"session that may grow{per_key}", until)
        if windows.sliding is not None:
            until = f"the watermark reaches start of the pane + {length_text(windows.sliding.size)}{lateness}"
            return self._bounds_per(f"pane of {length_text(windows.sliding.slide)}{per_key}", until)
        return self._bounds_per(f"window{per_key}", f"the watermark reaches window_end{lateness}")

    def _bounds_per(self, what: str, until: str) -> tuple[StateBound, ...]:
        values = [
            StateBound(table, f"a value of {call.column} per {what}", until)
            for table, call in value_tables(self.aggregates)
        ]
        return (StateBound("", f"a row per {what}", until), *values)

    def output_bound(self, output_key: Sequence[str]) -> StateBound | None:
        return StateBound(
            OUTPUT_TABLE, "emitted windows", f"the watermark reaches window_end{plus(self.allowed_lateness)}"
        )
