"""Telemetry inside Airflow goes where Airflow's own metrics and traces go, as the deployment has set them up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milepost.jobmaster.jobmaster import Metric, Telemetry

_METRICS_ON = ("statsd_on", "statsd_datadog_enabled", "otel_on")


def telemetry_of_airflow() -> Telemetry | None:
    """Return who listens to Airflow's tasks; None, and nothing of ours is imported: nobody does.

    Airflow gives each task of a run a span below that of the run, and its context is the current one: so the spans of
    an epoch are in the trace of its run.
    """
    from airflow.sdk.configuration import conf
    from opentelemetry import trace

    measured = any(conf.getboolean("metrics", name, fallback=False) for name in _METRICS_ON)
    traced = trace.get_current_span().is_recording()
    if not measured and not traced:
        return None
    from milepost.jobmaster.jobmaster import Telemetry

    return Telemetry(AirflowStats() if measured else None, trace.get_tracer("milepost") if traced else None)


class AirflowStats:
    """The metrics of the table as Airflow's stats."""

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        from airflow.sdk.observability import stats

        stats.incr(metric.full_name, round(amount), tags=dict(labels))

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        from airflow.sdk.observability import stats

        stats.gauge(metric.full_name, value, tags=dict(labels))
