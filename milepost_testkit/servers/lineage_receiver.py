"""A server that takes OpenLineage events, as a catalog does, and keeps them for a test."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENDPOINT = "/api/v1/lineage"


class LineageReceiver:
    """The events that came, in their order; on a free port of this machine."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._came = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                known = self.path == ENDPOINT
                if known:  # before the answer: the client sends its next event on another connection
                    receiver.take(json.loads(body))
                self.send_response(201 if known else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        return Handler

    def take(self, event: dict[str, Any]) -> None:
        with self._came:
            self.events.append(event)
            self._came.notify_all()

    def wait_for(self, count: int, timeout_s: float = 30.0) -> list[dict[str, Any]]:
        """Return the events once there are so many. AssertionError: there are not."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.events) >= count, timeout_s), self.events
            return list(self.events)

    @contextmanager
    def serving(self) -> Iterator[LineageReceiver]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
