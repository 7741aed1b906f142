"""An HTTP forwarder that sends some requests twice, as a transport does that lost the first answer."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

from milepost_testkit.proxies.recording_proxy import RecordingProxy


class RepeatingProxy(RecordingProxy):
    """Forwards to 127.0.0.1:<upstream_port>; the client gets the second answer to what is repeated.

    Attributes:
        repeat_when: called with (method, path) before a request is forwarded.
        first_statuses: of the answers that the client never sees.
    """

    def __init__(self, upstream_port: int) -> None:
        self.repeat_when: Callable[[str, str], bool] = lambda method, path: False
        self.first_statuses: list[int] = []
        super().__init__(upstream_port)

    def _handler(self, upstream_port: int) -> type[BaseHTTPRequestHandler]:
        proxy = self
        forwarding = super()._handler(upstream_port)

        class Handler(forwarding):  # type: ignore[valid-type,misc]
            def relay(self, body: bytes) -> None:
                if proxy.repeat_when(self.command, self.path):
                    upstream = http.client.HTTPConnection("127.0.0.1", upstream_port, timeout=120)
                    upstream.request(self.command, self.path, body, dict(self.headers.items()))
                    proxy.first_statuses.append(upstream.getresponse().status)
                    upstream.close()
                super().relay(body)

        return Handler
