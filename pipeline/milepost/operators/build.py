"""Factory that builds runnable operators from their spec and the schemas of their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from milepost.errors import InvalidRequest
from milepost.jobspec.graph import edge_names
from milepost.jobspec.job import AggregateOperator, DeduplicateOperator, StatefulSpec
from milepost.jobspec.job.operators import (
    AsofOperator,
    JoinOperator,
    LatestOperator,
    ProcessOperator,
    SlidingWindows,
    TopOperator,
    WindowOperator,
    Windows,
)
from milepost.language.times import Calendar, in_us, zone_data
from milepost.operators.aggregation.aggregate import AggregateByKey
from milepost.operators.aggregation.aggregate_over_updates import AggregateOverUpdates
from milepost.operators.aggregation.aggregates import timed_calls
from milepost.operators.contract import OperatorInput, StatefulOperator
from milepost.operators.deduplicate import DeduplicateByKey
from milepost.operators.functions.process import ProcessByKey, ProcessFunction
from milepost.operators.joins.asof import AsofJoinByKey
from milepost.operators.joins.interval_join import IntervalJoinByKey, JoinShape
from milepost.operators.latest import LatestByKey
from milepost.operators.materialized import MaterializedOperator
from milepost.operators.top import TopByKey
from milepost.operators.windows.session import SessionWindowByKey
from milepost.operators.windows.sliding import SlidingWindowByKey
from milepost.operators.windows.window import TumblingWindowByKey
from milepost.operators.windows.window_bounds import (
    CalendarSlides,
    CalendarWindows,
    FixedSlides,
    FixedWindows,
)
from milepost.operators.windows.windowed import Emission
from milepost.protocol.records import WEIGHT_COLUMN


def build_operator(
    spec: StatefulSpec,
    inputs: Sequence[OperatorInput],
    function: ProcessFunction | None = None,
    *,
    timed: bool = True,
    in_pieces: bool = False,
    retracts: bool = False,
) -> StatefulOperator:
    """Return the operator of a spec.

    Args:
        spec: a stateful operator of the job.
        inputs: its inputs, in the order of the spec.
        function: user code of a process operator.
        timed: whether a source with event time is upstream.
        in_pieces: whether an epoch of the job may be cut when its time is up.
        retracts: whether operators read its updates.
    Raises:
        InvalidRequest: a column is missing or has an unsupported type, or required event time is missing.
    """
    if isinstance(spec, JoinOperator):
        shape = JoinShape(spec.key, spec.bounds, spec.how, spec.renamed)
        return IntervalJoinByKey(spec.uid, shape, inputs)
    if isinstance(spec, AsofOperator):
        return AsofJoinByKey(spec.uid, spec.key, spec.how, inputs, spec.renamed)
    if isinstance(spec, ProcessOperator) and function is not None:
        named = dict(zip(edge_names(spec.inputs), inputs, strict=True))
        process = ProcessByKey(
            spec.uid, spec.key, function, named, spec.output_key or (), timed=timed, in_pieces=in_pieces
        )
        return MaterializedOperator(process) if retracts else process
    (input_,) = inputs  # all other operators have one input
    if isinstance(spec, AggregateOperator):
        calls = timed_calls(spec.uid, spec.aggregates, input_.event_time)
        if WEIGHT_COLUMN in input_.schema.names:
            return AggregateOverUpdates(spec.uid, spec.key, calls, input_)
        return AggregateByKey(spec.uid, spec.key, calls, input_.schema)
    if isinstance(spec, WindowOperator):
        window = _window(spec, input_)
        return MaterializedOperator(window, in_us(spec.allowed_lateness)) if retracts else window
    if isinstance(spec, TopOperator):
        return TopByKey(spec.uid, spec.key, spec.order_by, spec.n, spec.rank, input_)
    if isinstance(spec, LatestOperator):
        return LatestByKey(spec, input_)
    if isinstance(spec, DeduplicateOperator):
        return DeduplicateByKey(spec.uid, spec.key, spec.ttl, input_)
    raise InvalidRequest(
        f"`kind: {getattr(spec, 'kind', spec)}` is not available in this version. Nothing was changed."
    )


def _window(spec: WindowOperator, input_: OperatorInput) -> StatefulOperator:
    windows = spec.window
    emission = Emission(in_us(spec.allowed_lateness), early=spec.emit == "early")
    calls = timed_calls(spec.uid, spec.aggregates, input_.event_time)
    if windows.sliding is not None:
        return SlidingWindowByKey(spec.uid, spec.key, _slides(windows.sliding, windows), emission, calls, input_)
    if windows.session is not None:
        return SessionWindowByKey(spec.uid, spec.key, windows.session.gap, emission, calls, input_)
    assert windows.tumbling is not None, "the spec says which windows"
    bounds = window_bounds(windows.tumbling, windows)
    return TumblingWindowByKey(spec.uid, spec.key, bounds, emission, calls, input_)


def window_bounds(length: timedelta | Calendar, windows: Windows) -> FixedWindows | CalendarWindows:
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
