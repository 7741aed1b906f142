"""The part of a spec that aggregates the rows of a key within event-time windows."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

from milepost.spec.job.operators.keyed import Aggregates, KeyedOperator
from milepost.spec.values.fields import Duration, PositiveDuration, SpecModel
from milepost.spec.values.times.calendar import MOST_DAYS, Calendar, parse_calendar
from milepost.spec.values.times.durations import format_duration, parse_duration
from milepost.spec.values.times.time_zones import zone_data

MOST_PANES = 1_000
"""Of one window: so many partial results are merged when it is done."""

_DAY = timedelta(days=1)


def _length(text: object) -> timedelta | Calendar:
    found = text if isinstance(text, Calendar) else parse_calendar(text)
    if found is not None:
        return found
    length = parse_duration(text)
    if not length:
        raise ValueError("expected a duration above 0s")
    return length


def length_text(length: timedelta | Calendar) -> str:
    """Return the one canonical text of a length."""
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
    """Windows of one size that overlap: one begins at each multiple of `slide`, counted from 1970-01-01T00:00Z.

    Attributes:
        size: the length of each: 2 to 1,000 times `slide`, without a remainder; of weeks or months as that is.
        slide: from the start of one window to that of the next, a duration above 0s; or weeks that begin on Monday
            (`1w`), or months (`1mo`).
    """

    size: WindowLength
    slide: WindowLength

    @property
    def panes(self) -> int:
        """How many times its slide a window is long."""
        return _divided(self)[0]


def _divided(windows: SlidingWindows) -> tuple[int, timedelta | int]:
    """Return how many times its slide a window is long, and the rest. Raises ValueError: in no unit of both."""
    size, slide = windows.size, windows.slide
    if isinstance(size, Calendar) and isinstance(slide, Calendar) and size.unit == slide.unit:
        return divmod(size.count, slide.count)
    if isinstance(size, timedelta) and isinstance(slide, timedelta):
        return divmod(size, slide)
    said = f"size: {length_text(size)} and slide: {length_text(slide)}"
    raise ValueError(f"{said} are not both of weeks, of months, or durations; a week is also 7d")


class SessionWindows(SpecModel):
    """Windows of rows of a key that follow each other closely.

    Attributes:
        gap: a row that comes so long after the one before it, or later, begins a new session; above 0s.
    """

    gap: PositiveDuration


def _whole_panes(windows: SlidingWindows | None) -> SlidingWindows | None:
    if windows is None:
        return None
    size, slide = length_text(windows.size), length_text(windows.slide)
    panes, rest = _divided(windows)
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
        offset: how long after such a moment, or after midnight of a local day, windows begin; below their length, of
            sliding ones below `slide`. null: 0s.
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
        """The days, weeks or months from the start of one window to that of the next; None: these have a length."""
        step = self.step
        if isinstance(step, Calendar):
            return step
        if self.timezone is None or step is None or step % _DAY:
            return None
        return Calendar(step // _DAY, "d")

    @property
    def step(self) -> timedelta | Calendar | None:
        """From the start of one window to that of the next; None: sessions begin with their rows."""
        return self.tumbling if self.sliding is None else self.sliding.slide


def _one_kind(windows: Windows) -> Windows:
    given = [name for name in ("tumbling", "sliding", "session") if getattr(windows, name) is not None]
    if len(given) != 1:
        raise ValueError(f"expected one of tumbling, sliding and session, got {' and '.join(given) or 'none'}")
    for key in ("timezone", "offset"):
        if windows.session is not None and getattr(windows, key) is not None:
            raise ValueError(f"`{key}` is of tumbling and sliding windows: a session begins with its first row")
    _check_calendar(windows)
    return windows


def _check_calendar(windows: Windows) -> None:
    step, offset = windows.step, windows.offset
    if step is None:
        return
    name = "tumbling" if windows.sliding is None else "slide"
    if windows.timezone is not None and windows.calendar is None:
        raise ValueError(f"timezone is of whole days, weeks and months, got {name}: {length_text(step)}")
    name, size = ("tumbling", step) if windows.sliding is None else ("size", windows.sliding.size)
    if windows.timezone is not None and isinstance(size, timedelta) and size.days > MOST_DAYS:
        raise ValueError(f"{name}: expected at most {MOST_DAYS}d of a time zone, got {format_duration(size)}")
    shortest = step.shortest if isinstance(step, Calendar) else step
    if offset is not None and offset >= shortest:
        of = "the length" if windows.sliding is None else "slide"
        raise ValueError(f"offset: {format_duration(offset)} is not below {of}, {format_duration(shortest)}")


class WindowOperator(KeyedOperator):
    """Aggregates per key and event-time window; output has window_start and window_end, and `<uid>.late` its late rows.

    Attributes:
        inputs: the name of one source or operator; its rows are append, never updates, with an event time.
        window: which windows a row belongs to.
        aggregates: column of the output, and what it holds, as of an aggregate operator.
        allowed_lateness: how long after its end a window still takes rows up. 0s: it is emitted once, then final
            (append); more: again with each epoch that brings it rows (updates). A session that has become part of
            another one, or is not done any more, is deleted.
        emit: when windows come out: final, once they are done; early, with each epoch that brings them rows, before as
            well (updates), and once they are done.
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
