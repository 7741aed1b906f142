"""Telemetry tells who listens of each epoch that ends: metrics as they add up, and its spans."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from milepost.codec.records import to_json
from milepost.jobmaster.metrics.epoch_spans import SpanTimes, epoch_span
from milepost.jobmaster.metrics.metric_table import Kind, Metric
from milepost.jobmaster.metrics.samples import Sample, samples_of
from milepost.jobmaster.reports.checkpoint.details import CheckpointDetails
from milepost.protocol.manifest.transaction.events import CheckpointAborted

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_LOG = logging.getLogger(__name__)
_NS_PER_MS = 1_000_000


class Instruments(Protocol):
    """Where metrics go."""

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        """Add what an epoch adds."""

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Replace the value of a gauge."""


@dataclass(frozen=True)
class Telemetry:
    """Whoever listens; an error of theirs is logged, the epoch is done.

    Attributes:
        instruments, tracer: None: nobody listens to these.
    """

    instruments: Instruments | None
    tracer: Tracer | None

    def completed(self, job: str, report: object) -> None:
        """Tell of an epoch that is complete. Args: report: as `show` has it; of one not retained nothing is told."""
        if not isinstance(report, CheckpointDetails):
            return
        try:
            if self.instruments is not None:
                push(samples_of(job, {"checkpoint": to_json(report)}), self.instruments)
            whole = epoch_span(job, report) if self.tracer is not None else None
            if self.tracer is not None and whole is not None:
                _record(self.tracer, whole, None)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with who listens, the epoch is published
            _LOG.warning("checkpoint %s: its telemetry was not told: %s", report.checkpoint_id, error)

    def aborted(self, job: str, event: CheckpointAborted, span: Callable[[], SpanTimes]) -> None:
        """Tell of an epoch that was given up. Args: span: makes its span, if somebody listens to it."""
        try:
            if self.instruments is not None:
                push(samples_of(job, {"aborted": {"reason": event.reason.value}}), self.instruments)
            if self.tracer is not None:
                _record(self.tracer, span(), None)
        except Exception as error:  # noqa: BLE001 - the failure is what has to be told
            _LOG.warning("checkpoint %s: its telemetry was not told: %s", event.pending.checkpoint_id, error)


def push(samples: Iterable[Sample], instruments: Instruments) -> None:
    """Tell samples as they are pushed: words are left out, because nothing would take the old one back."""
    for sample in samples:
        if sample.metric.kind in (Kind.EPOCH, Kind.EVENT):
            instruments.add(sample.metric, sample.value, sample.labels)
        elif sample.metric.kind is Kind.GAUGE:
            instruments.set(sample.metric, sample.value, sample.labels)


def _record(tracer: Tracer, times: SpanTimes, parent: Span | None) -> None:
    from opentelemetry import trace

    context: Any = None if parent is None else trace.set_span_in_context(parent)
    span = tracer.start_span(
        times.name, context, attributes=dict(times.attributes), start_time=times.started_ms * _NS_PER_MS
    )
    if times.error:
        span.set_status(trace.Status(trace.StatusCode.ERROR, times.error))
    for part in times.parts:
        _record(tracer, part, span)
    span.end(times.ended_ms * _NS_PER_MS)
