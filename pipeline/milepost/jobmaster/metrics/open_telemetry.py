"""OpenTelemetry outside Airflow: set up by its own variables, and by nothing else.

Who starts `milepost` under `opentelemetry-instrument`, or in a program with providers of its own, has it set up.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from milepost.extras import require
from milepost.jobmaster.metrics.metric_table import METRICS, Kind, Metric
from milepost.jobmaster.metrics.telemetry import Telemetry

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

_ENDPOINT, _PROTOCOL = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
_OTLP = "otlp"
_OVER_HTTP = "otlp_proto_http"


def telemetry_of_environment(environ: Mapping[str, str] = os.environ) -> Telemetry | None:
    """Return who listens by OpenTelemetry's variables; None, and nothing is imported: nobody does.

    Raises: EnvironmentUnusable: the variables ask for it, and its SDK is not installed.
    """
    traces, metrics = _exporter(environ, "TRACES"), _exporter(environ, "METRICS")
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or not (traces or metrics):
        return None
    require("otel", "OpenTelemetry, which the variables OTEL_… ask for,")
    meter, tracer = _meter(metrics), _tracer(traces, environ)
    return Telemetry(None if meter is None else MeteredInstruments(meter), tracer)


def _exporter(environ: Mapping[str, str], signal: str) -> str | None:
    """Return the name of the exporter of a signal; None: it is not asked for."""
    asked = environ.get(f"OTEL_{signal}_EXPORTER")
    endpoint = environ.get(_ENDPOINT) or environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    name = asked or (_OTLP if endpoint else None)
    if name in (None, "none"):
        return None
    protocol = environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or environ.get(_PROTOCOL)
    return _OVER_HTTP if name == _OTLP and protocol == "http/protobuf" else name


def _loaded(signal: str, name: str) -> Any:
    found = entry_points(group=f"opentelemetry_{signal}_exporter", name=name)
    if not found:
        from milepost.protocol.records.errors import EnvironmentUnusable

        raise EnvironmentUnusable(
            f"OTEL_{signal.upper()}_EXPORTER names {name!r}, which is not installed.",
            hint="install it, or name another",
        )
    return next(iter(found)).load()()


@cache
def _meter(exporter: str | None) -> Meter | None:
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    if exporter is None:
        return None
    if not isinstance(metrics.get_meter_provider(), MeterProvider):
        reader = PeriodicExportingMetricReader(_loaded("metrics", exporter))
        metrics.set_meter_provider(MeterProvider([reader]))  # which tells what is left when the process ends
    return metrics.get_meter("milepost")


def _tracer(exporter: str | None, environ: Mapping[str, str]) -> Any:
    from opentelemetry import context, trace
    from opentelemetry.propagate import extract
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if exporter is None:
        return None
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(_loaded("traces", exporter)))
        trace.set_tracer_provider(provider)
        if "TRACEPARENT" in environ:  # of whoever started this process
            context.attach(extract({"traceparent": environ["TRACEPARENT"]}))
    return trace.get_tracer("milepost")


class MeteredInstruments:
    """The metrics of the table as instruments of a meter."""

    def __init__(self, meter: Meter) -> None:
        self._counters = {
            one: meter.create_counter(one.full_name, one.unit.value, one.description)
            for one in METRICS
            if one.kind in (Kind.EPOCH, Kind.EVENT)
        }
        self._gauges = {
            one: meter.create_gauge(one.full_name, one.unit.value, one.description)
            for one in METRICS
            if one.kind is Kind.GAUGE
        }

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        self._counters[metric].add(amount, dict(labels))

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self._gauges[metric].set(value, dict(labels))
