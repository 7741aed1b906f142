"""Send telemetry to the backends of Airflow's own metrics and traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from milepost.airflow.compat import conf, metrics

if TYPE_CHECKING:
    from milepost.jobmaster import Metric, Telemetry

_METRICS_ON = ("statsd_on", "statsd_datadog_enabled", "otel_on")


def telemetry_of_airflow() -> Telemetry | None:
    """Return the telemetry of a task; None, without importing ours, if neither metrics nor traces are on.

    Airflow's span of a task, a child of the run's span, is the current context. So the spans of an epoch are part of
    the trace of its run.
    """
    from opentelemetry import trace

    measured = any(conf.getboolean("metrics", name, fallback=False) for name in _METRICS_ON)
    traced = trace.get_current_span().is_recording()
    if not measured and not traced:
        return None
    from milepost.jobmaster import Telemetry

    return Telemetry(AirflowStats() if measured else None, trace.get_tracer("milepost") if traced else None)


class AirflowStats:
    """Reports metrics through Airflow's stats."""

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        metrics().incr(metric.full_name, round(amount), tags=dict(labels))

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        metrics().gauge(metric.full_name, value, tags=dict(labels))
