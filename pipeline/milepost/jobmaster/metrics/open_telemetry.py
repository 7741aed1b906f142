"""OpenTelemetry outside Airflow: set up by its own variables, and by nothing else.

Who starts `milepost` under `opentelemetry-instrument`, or in a program with providers of its own, has it set up.
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

PATIENCE_S = 5.0
"""How long a process that ends waits for collectors to take what is left: else they are asked for half a minute."""

_ENDPOINT, _PROTOCOL = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
_OTLP = "otlp"
_OVER_HTTP = "otlp_proto_http"


def telemetry_from_environment(environ: Mapping[str, str] = os.environ) -> Telemetry | None:
    """Return who listens by OpenTelemetry's variables; None, and nothing is imported: nobody does.

    Raises: EnvironmentUnusable: the variables ask for it, and its SDK is not installed, or refuses what they say.
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
        raise EnvironmentUnusable(
            f"OTEL_{signal.upper()}_EXPORTER names {name!r}, which is not installed. Nothing was run.",
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
        provider = MeterProvider([reader], shutdown_on_exit=False)
        metrics.set_meter_provider(provider)
        _end_with_process(provider.shutdown)
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
        _end_with_process(provider.shutdown)
        provider.add_span_processor(BatchSpanProcessor(_loaded("traces", exporter)))
        trace.set_tracer_provider(provider)
        if "TRACEPARENT" in environ:  # of whoever started this process
            context.attach(extract({"traceparent": environ["TRACEPARENT"]}))
    return trace.get_tracer("milepost")


_ends: list[Callable[[], object]] = []
"""What tells collectors the rest, and ends them, when the process ends."""


def _end_with_process(end: Callable[[], object]) -> None:
    if not _ends:
        atexit.register(_end)
    _ends.append(end)


def _end() -> None:
    """Tell what is left, side by side; who does not take it in time keeps the process no longer."""
    ending = [threading.Thread(target=end, name="tells a collector the rest", daemon=True) for end in _ends]
    until = time.monotonic() + PATIENCE_S
    for thread in ending:
        thread.start()
    for thread in ending:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in ending):
        _LOG.warning("a collector did not take what was left to tell within %g s: it is not told", PATIENCE_S)


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
