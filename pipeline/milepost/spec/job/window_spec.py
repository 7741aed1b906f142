"""The part of a spec that aggregates the rows of a key within event-time windows."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

from milepost.spec.job.keyed_spec import Aggregates, KeyedOperator
from milepost.spec.values.calendar import Calendar, parse_calendar
from milepost.spec.values.durations import format_duration, parse_duration
from milepost.spec.values.fields import Duration, PositiveDuration, SpecModel
from milepost.spec.values.time_zones import zone_data

MOST_PANES = 1_000
"""Of one window: so many partial results are merged when it is done."""

_DAY = timedelta(days=1)


def _length(text: object) -> timedelta | Calendar:
    found = text if isinstance(text, Calendar) else parse_calendar(text)
    if found is not None and found.unit != "d":
        return found
    length = parse_duration(text)
    if not length:
        raise ValueError("expected a duration above 0s")
    return length


def _length_text(length: timedelta | Calendar) -> str:
    return str(length) if isinstance(length, Calendar) else format_duration(length)


def _zone(name: str) -> str:
    zone_data(name)
    return name


WindowLength = Annotated[
    timedelta | Calendar,
    BeforeValidator(_length),
    PlainSerializer(_length_text, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^\d{1,9}(ms|s|m|h|d|w|mo)$", "description": "30m 1d 1w 3mo"}),
]
WindowZone = Annotated[str, AfterValidator(_zone), WithJsonSchema({"type": "string"})]


class SlidingWindows(SpecModel):
    """Windows of one size that overlap: one begins at each multiple of `slide`, counted from 1970-01-01T00:00Z.

    Attributes:
        size: the length of each: 2 to 1,000 times `slide`, without a remainder.
        slide: from the start of one window to that of the next, above 0s.
    """

    size: PositiveDuration
    slide: PositiveDuration


class SessionWindows(SpecModel):
    """Windows of rows of a key that follow each other closely.

    Attributes:
        gap: a row that comes so long after the one before it, or later, begins a new session; above 0s.
    """

    gap: PositiveDuration


def _whole_panes(windows: SlidingWindows | None) -> SlidingWindows | None:
    if windows is None:
        return None
    size, slide = format_duration(windows.size), format_duration(windows.slide)
    panes, rest = divmod(windows.size, windows.slide)
    if rest:
        raise ValueError(f"size: {size} is not a multiple of slide: {slide}")
    if panes == 1:
        raise ValueError(f"windows of {size} every {slide} do not overlap: write tumbling: {size}")
    if panes > MOST_PANES:
        raise ValueError(f"size: {size} is {panes} times slide: {slide}, at most {MOST_PANES} times is available")
    return windows


class Windows(SpecModel):
    """Which windows a row belongs to: one of tumbling, sliding and session.

    Attributes:
        tumbling: windows that touch: the length of each, a duration above 0s, aligned to 1970-01-01T00:00Z; or weeks
            that begin on Monday (`1w`), or months (`1mo`).
        timezone: of whole days, weeks or months, such as Europe/Berlin: days have 23 or 25 hours where its clock is
            set. null: UTC.
        offset: how long after such a moment, or after midnight of a local day, tumbling windows begin; below their
            length. null: 0s.
        sliding: windows of one size that overlap.
        session: windows of rows that follow each other closely.
    """

    tumbling: WindowLength | None = None
    timezone: WindowZone | None = None
    offset: Duration | None = None
    sliding: Annotated[SlidingWindows | None, AfterValidator(_whole_panes)] = None
    session: SessionWindows | None = None

    @property
    def calendar(self) -> Calendar | None:
        """The days, weeks or months that tumbling windows are; None: they have a fixed length."""
        if isinstance(self.tumbling, Calendar):
            return self.tumbling
        if self.timezone is None or self.tumbling is None or self.tumbling % _DAY:
            return None
        return Calendar(self.tumbling // _DAY, "d")


def _one_kind(windows: Windows) -> Windows:
    given = [name for name in ("tumbling", "sliding", "session") if getattr(windows, name) is not None]
    if len(given) != 1:
        raise ValueError(f"expected one of tumbling, sliding and session, got {' and '.join(given) or 'none'}")
    for key in ("timezone", "offset"):
        if windows.tumbling is None and getattr(windows, key) is not None:
            raise ValueError(f"`{key}` of {given[0]} windows is not available in this version")
    _check_calendar(windows)
    return windows


def _check_calendar(windows: Windows) -> None:
    length, offset = windows.tumbling, windows.offset
    if windows.timezone is not None and windows.calendar is None:
        assert isinstance(length, timedelta)
        raise ValueError(f"timezone is of whole days, weeks and months, got tumbling: {format_duration(length)}")
    shortest = length.shortest if isinstance(length, Calendar) else length
    if offset is not None and shortest is not None and offset >= shortest:
        raise ValueError(f"offset: {format_duration(offset)} is not below the length, {format_duration(shortest)}")


class WindowOperator(KeyedOperator):
    """Aggregates per key and event-time window; output has window_start and window_end, and `<uid>.late` its late rows.

    Attributes:
        inputs: the name of one source or operator; its rows are append, never updates, with an event time.
        window: which windows a row belongs to.
        aggregates: column of the output, and what it holds, as of an aggregate operator.
        allowed_lateness: how long after its end a window still takes rows up. 0s: it is emitted once, then final
            (append); more: again with each epoch that brings it rows (updates), which sessions cannot.
        emit: when windows come out: final, once they are done; early, with each epoch that brings them rows, before as
            well (updates), and once they are done, which sessions cannot.
    """

    kind: Literal["window"]
    window: Annotated[Windows, AfterValidator(_one_kind)]
    aggregates: Aggregates
    allowed_lateness: Duration = timedelta(0)
    emit: Literal["final", "early"] = "final"

    @property
    def updates(self) -> bool:
        """Whether a window may come out again, in place of itself."""
        return bool(self.allowed_lateness) or self.emit == "early"
