"""Configure OpenTelemetry outside Airflow from its own environment variables.

Providers that `opentelemetry-instrument` or the calling program has installed are used as they are.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from milepost.errors import EnvironmentUnusable
from milepost.extras import require
from milepost.jobmaster.metrics.metric_table import METRICS, Kind, Metric
from milepost.jobmaster.metrics.telemetry import Telemetry

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

_LOG = logging.getLogger(__name__)

SHUTDOWN_TIMEOUT_S = 5.0
"""How long an ending process waits for collectors to accept the remaining data; the SDK would retry for 30 s."""

_ENDPOINT, _PROTOCOL = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
_OTLP = "otlp"
_OVER_HTTP = "otlp_proto_http"


def telemetry_from_environment(environ: Mapping[str, str] = os.environ) -> Telemetry | None:
    """Return the telemetry that OpenTelemetry's variables configure; None: none, and nothing is imported.

    Raises: EnvironmentUnusable: the SDK is not installed, or refuses the values of the variables.
    """
    traces, metrics = _exporter(environ, "TRACES"), _exporter(environ, "METRICS")
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or not (traces or metrics):
        return None
    require("otel", "OpenTelemetry, which the variables OTEL_… ask for,")
    try:
        meter, tracer = _meter(metrics), _tracer(traces, environ)
    except (ValueError, OSError) as error:
        raise EnvironmentUnusable(
            f"OpenTelemetry refuses what its variables OTEL_… say: {error}. Nothing was run.", hint="correct them"
        ) from error
    return Telemetry(None if meter is None else MeteredInstruments(meter), tracer)


def _exporter(environ: Mapping[str, str], signal: str) -> str | None:
    """Return the name of a signal's exporter; None: the signal is not requested."""
    exporter = environ.get(f"OTEL_{signal}_EXPORTER")
    endpoint = environ.get(_ENDPOINT) or environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    name = exporter or (_OTLP if endpoint else None)
    if name in (None, "none"):
        return None
    protocol = environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or environ.get(_PROTOCOL)
    return _OVER_HTTP if name == _OTLP and protocol == "http/protobuf" else name


def _load_exporter(signal: str, name: str) -> Any:
    candidates = entry_points(group=f"opentelemetry_{signal}_exporter", name=name)
    if not candidates:
        raise EnvironmentUnusable(
            f"OTEL_{signal.upper()}_EXPORTER names {name!r}, which is not installed. Nothing was run.",
            hint="install it, or name another",
        )
    return next(iter(candidates)).load()()


@cache
def _meter(exporter: str | None) -> Meter | None:
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    if exporter is None:
        return None
    if not isinstance(metrics.get_meter_provider(), MeterProvider):
        reader = PeriodicExportingMetricReader(_load_exporter("metrics", exporter))
        provider = MeterProvider([reader], shutdown_on_exit=False)
        metrics.set_meter_provider(provider)
        _shut_down_at_exit(provider.shutdown)
    return metrics.get_meter("milepost")


def _tracer(exporter: str | None, environ: Mapping[str, str]) -> Any:
    from opentelemetry import context, trace
    from opentelemetry.propagate import extract
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if exporter is None:
        return None
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider(shutdown_on_exit=False)
        _shut_down_at_exit(provider.shutdown)
        provider.add_span_processor(BatchSpanProcessor(_load_exporter("traces", exporter)))
        trace.set_tracer_provider(provider)
        if "TRACEPARENT" in environ:  # the trace of the calling process
            context.attach(extract({"traceparent": environ["TRACEPARENT"]}))
    return trace.get_tracer("milepost")


_shutdowns: list[Callable[[], object]] = []
"""Shutdown functions of the providers, called at exit to flush them."""


def _shut_down_at_exit(shutdown: Callable[[], object]) -> None:
    if not _shutdowns:
        atexit.register(_shut_down)
    _shutdowns.append(shutdown)


def _shut_down() -> None:
    """Flush all providers concurrently. A collector that is too slow does not delay the exit further."""
    threads = [threading.Thread(target=shutdown, name="flush telemetry", daemon=True) for shutdown in _shutdowns]
    deadline = time.monotonic() + SHUTDOWN_TIMEOUT_S
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        _LOG.warning(
            "a collector did not accept the remaining telemetry within %g s: it is dropped", SHUTDOWN_TIMEOUT_S
        )


class MeteredInstruments:
    """The metrics of the table as instruments of a meter."""

    def __init__(self, meter: Meter) -> None:
        self._counters = {
            metric: meter.create_counter(metric.full_name, metric.unit.value, metric.description)
            for metric in METRICS
            if metric.kind in (Kind.EPOCH, Kind.EVENT)
        }
        self._gauges = {
            metric: meter.create_gauge(metric.full_name, metric.unit.value, metric.description)
            for metric in METRICS
            if metric.kind is Kind.GAUGE
        }

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        self._counters[metric].add(amount, dict(labels))

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self._gauges[metric].set(value, dict(labels))
