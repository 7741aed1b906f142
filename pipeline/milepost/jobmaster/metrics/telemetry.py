"""Export metrics and trace spans of each epoch that ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from milepost.codec import to_json
from milepost.jobmaster.metrics.epoch_spans import SpanTimes, epoch_span
from milepost.jobmaster.metrics.metric_table import Kind, Metric
from milepost.jobmaster.metrics.samples import Sample, samples_of
from milepost.jobmaster.reports.checkpoint.details import CheckpointDetails
from milepost.protocol.manifest.transaction import CheckpointAborted

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_LOG = logging.getLogger(__name__)
_NS_PER_MS = 1_000_000


class Instruments(Protocol):
    """Receives metrics."""

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        """Add an epoch's increment to a counter."""

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Set the value of a gauge."""


@dataclass(frozen=True)
class Telemetry:
    """Exports to instruments and a tracer. Their errors are logged: the epoch has already ended.

    Attributes:
        instruments, tracer: None: metrics or traces are not configured.
    """

    instruments: Instruments | None
    tracer: Tracer | None

    def completed(self, job: str, report: object) -> None:
        """Export a complete epoch.

        Args:
            report: as in `show`; nothing is exported if the checkpoint is not retained.
        """
        if not isinstance(report, CheckpointDetails):
            return
        try:
            if self.instruments is not None:
                push(samples_of(job, {"checkpoint": to_json(report)}), self.instruments)
            span = epoch_span(job, report) if self.tracer is not None else None
            if self.tracer is not None and span is not None:
                _record(self.tracer, span, None)
        except Exception as error:  # noqa: BLE001 - the epoch is published, so an exporter's error is only logged
            _LOG.warning("checkpoint %s: cannot export its telemetry: %s", report.checkpoint_id, error)

    def aborted(self, job: str, event: CheckpointAborted, span: Callable[[], SpanTimes]) -> None:
        """Export an aborted epoch.

        Args:
            span: builds the span; called only if traces are configured.
        """
        try:
            if self.instruments is not None:
                push(samples_of(job, {"aborted": {"reason": event.reason.value}}), self.instruments)
            if self.tracer is not None:
                _record(self.tracer, span(), None)
        except Exception as error:  # noqa: BLE001 - the abort is the error to report
            _LOG.warning("checkpoint %s: cannot export its telemetry: %s", event.pending.checkpoint_id, error)


def push(samples: Iterable[Sample], instruments: Instruments) -> None:
    """Push samples to instruments. Words are left out, because nothing would reset the former word's series."""
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
