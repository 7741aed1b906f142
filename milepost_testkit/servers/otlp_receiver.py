"""A collector on loopback that takes OTLP over HTTP, and keeps what it was sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Receiver(ThreadingHTTPServer):
    """Keeps the bodies of what it was sent, by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sent: dict[str, list[bytes]] = {}

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def spans(self) -> list[Span]:
        """Every span, in the order in which it came."""
        traces = [ExportTraceServiceRequest.FromString(body) for body in self.sent["/v1/traces"]]
        return [one for sent in traces for of in sent.resource_spans for scope in of.scope_spans for one in scope.spans]

    @property
    def metrics(self) -> set[str]:
        """The names of all metrics."""
        told = [ExportMetricsServiceRequest.FromString(body) for body in self.sent["/v1/metrics"]]
        scopes = [scope for sent in told for of in sent.resource_metrics for scope in of.scope_metrics]
        return {one.name for scope in scopes for one in scope.metrics}


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.sent.setdefault(self.path, []).append(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: what is sent is kept instead."""


@contextmanager
def otlp_receiver() -> Iterator[Receiver]:
    """Run a collector."""
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
