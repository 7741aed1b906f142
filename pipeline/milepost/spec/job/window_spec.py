"""The part of a spec that aggregates the rows of a key within event-time windows."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator

from milepost.spec.job.keyed_spec import Aggregates, KeyedOperator
from milepost.spec.values.durations import format_duration
from milepost.spec.values.fields import Duration, PositiveDuration, SpecModel

MOST_PANES = 1_000
"""Of one window: so many partial results are merged when it is done."""


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
    """Which windows a row belongs to: one of the three.

    Attributes:
        tumbling: windows of one size that touch, aligned to 1970-01-01T00:00Z: the length of each, above 0s.
        sliding: windows of one size that overlap.
        session: windows of rows that follow each other closely.
    """

    tumbling: PositiveDuration | None = None
    sliding: Annotated[SlidingWindows | None, AfterValidator(_whole_panes)] = None
    session: SessionWindows | None = None


def _one_kind(windows: Windows) -> Windows:
    given = list(windows.model_dump(exclude_none=True))
    if len(given) != 1:
        raise ValueError(f"expected one of tumbling, sliding and session, got {' and '.join(given) or 'none'}")
    return windows


class WindowOperator(KeyedOperator):
    """Aggregates per key and event-time window; output has window_start and window_end, and `<uid>.late` its late rows.

    Attributes:
        inputs: the name of one source or operator; its rows are append, never updates, with an event time.
        window: which windows a row belongs to.
        aggregates: column of the output, and what it holds, as of an aggregate operator.
        allowed_lateness: how long after its end a window still takes rows up. 0s: it is emitted once, then final
            (append); more: again with each epoch that brings it rows (updates), which sessions cannot.
    """

    kind: Literal["window"]
    window: Annotated[Windows, AfterValidator(_one_kind)]
    aggregates: Aggregates
    allowed_lateness: Duration = timedelta(0)
