"""An HTTP proxy in front of a real S3 server that records requests; it may drop headers, or reset after the reply.

The signed Host header is passed on unchanged.
"""

from __future__ import annotations

import http.client
import io
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "expect"})


class RecordingProxy:
    """Forwards to 127.0.0.1:<upstream_port>. Use as a context manager.

    Attributes:
        endpoint_url: what clients use instead of the server's.
        dropped_headers: lower-case names of request headers that never arrive.
        reset_when: called with (method, path, headers) after the server has replied to it; True: the client gets a
            connection reset instead of the reply.
        requests: (method, path) of all requests that the server answered. replied_bytes: of the bodies of its answers.
    """

    def __init__(self, upstream_port: int, *, dropped_headers: frozenset[str] = frozenset()) -> None:
        self.dropped_headers = dropped_headers
        self.reset_when: Callable[[str, str, dict[str, str]], bool] = lambda method, path, headers: False
        self.requests: list[tuple[str, str]] = []
        self.replied_bytes: list[int] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(upstream_port))
        self._server.daemon_threads = True
        self.endpoint_url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> RecordingProxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def _handler(self, upstream_port: int) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self) -> None:
                length = int(self.headers.get("Content-Length", "0"))
                self.relay(self.rfile.read(length))

            def relay(self, body: bytes) -> None:
                """Send a request on, and its answer back."""
                sent = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
                upstream = http.client.HTTPConnection("127.0.0.1", upstream_port, timeout=120)
                kept = {name: value for name, value in sent.items() if name.lower() not in proxy.dropped_headers}
                upstream.request(self.command, self.path, body or None, kept)
                reply = upstream.getresponse()
                content = reply.read()
                upstream.close()
                proxy.requests.append((self.command, self.path))
                proxy.replied_bytes.append(len(content))
                if proxy.reset_when(self.command, self.path, {name.lower(): value for name, value in sent.items()}):
                    self._reset()
                    return
                self.send_response_only(reply.status)
                for name, value in reply.getheaders():
                    if name.lower() not in (*_HOP_BY_HOP, "content-length"):
                        self.send_header(name, value)
                is_head = self.command == "HEAD"
                self.send_header(
                    "Content-Length", reply.headers["Content-Length"] or "0" if is_head else str(len(content))
                )
                self.end_headers()
                if not is_head:
                    self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

            def _reset(self) -> None:
                # Linger 0: close sends RST instead of FIN, so the client sees "connection reset".
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                with suppress(OSError):
                    self.connection.close()
                self.wfile = io.BytesIO()  # the base class flushes and closes it

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing: requests are recorded instead."""

        return Handler
