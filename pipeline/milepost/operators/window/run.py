"""`kind: window`: build the operator of tumbling, sliding or session windows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from milepost.language.times import Calendar, in_us, zone_data
from milepost.operators.aggregation.aggregates import timed_calls
from milepost.operators.contract import BuildOptions, OperatorInput, StatefulOperator
from milepost.operators.materialized import MaterializedOperator
from milepost.operators.window.session import SessionWindowByKey
from milepost.operators.window.sliding import SlidingWindowByKey
from milepost.operators.window.spec import SlidingWindows, WindowOperator, Windows
from milepost.operators.window.tumbling import TumblingWindowByKey
from milepost.operators.window.window_bounds import CalendarSlides, CalendarWindows, FixedSlides, FixedWindows
from milepost.operators.window.windowed import Emission


def build(spec: WindowOperator, inputs: Sequence[OperatorInput], options: BuildOptions) -> StatefulOperator:
    """Return the operator of a spec. Raises InvalidRequest."""
    (input_,) = inputs
    window = _windows_by_key(spec, input_)
    return MaterializedOperator(window, in_us(spec.allowed_lateness)) if options.retracts else window


def _windows_by_key(spec: WindowOperator, input_: OperatorInput) -> StatefulOperator:
    windows = spec.window
    emission = Emission(in_us(spec.allowed_lateness), early=spec.emit == "early")
    calls = timed_calls(spec.uid, spec.aggregates, input_.event_time)
    if windows.sliding is not None:
        return SlidingWindowByKey(spec.uid, spec.key, _slides(windows.sliding, windows), emission, calls, input_)
    if windows.session is not None:
        return SessionWindowByKey(spec.uid, spec.key, windows.session.gap, emission, calls, input_)
    assert windows.tumbling is not None, "the spec says which windows"
    bounds = tumbling_bounds(windows.tumbling, windows)
    return TumblingWindowByKey(spec.uid, spec.key, bounds, emission, calls, input_)


def tumbling_bounds(length: timedelta | Calendar, windows: Windows) -> FixedWindows | CalendarWindows:
    """Return the bounds of tumbling windows."""
    offset = windows.offset or timedelta(0)
    if windows.calendar is not None:
        return CalendarWindows(windows.calendar, offset, zone_data(windows.timezone or "UTC"))
    assert isinstance(length, timedelta), "the others are of a calendar"
    return FixedWindows(in_us(length), in_us(offset))


def _slides(sliding: SlidingWindows, windows: Windows) -> FixedSlides | CalendarSlides:
    offset = windows.offset or timedelta(0)
    if windows.calendar is not None:
        return CalendarSlides(windows.calendar, sliding.panes, offset, zone_data(windows.timezone or "UTC"))
    assert isinstance(sliding.slide, timedelta), "the others are of a calendar"
    return FixedSlides(in_us(sliding.slide), sliding.panes, in_us(offset))
