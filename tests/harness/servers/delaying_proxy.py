"""An HTTP forwarder before a real S3 server that answers each request a while later, as a store far away does."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

from tests.harness.servers.header_dropping_proxy import HeaderDroppingProxy


@dataclass(frozen=True)
class Answered:
    """One request that was answered: when it had arrived, and when its answer went off, on one monotonic clock."""

    method: str
    path: str
    arrived_s: float
    answered_s: float


def longest_line(requests: Sequence[Answered]) -> int:
    """Return how many requests at most waited for one another: each arrived after the one before was answered."""
    line, free_s = 0, float("-inf")
    for request in sorted(requests, key=lambda one: one.answered_s):
        if request.arrived_s >= free_s:
            line, free_s = line + 1, request.answered_s
    return line


class DelayingProxy(HeaderDroppingProxy):
    """Forwards to 127.0.0.1:<upstream_port>; an answer goes off no sooner than `delay_s` after its request arrived.

    Attributes:
        delay_s: may be set anew at any time. answered: all requests so far, in the order of their answers.
    """

    def __init__(self, upstream_port: int, delay_s: float) -> None:
        self.delay_s = delay_s
        self.answered: list[Answered] = []
        super().__init__(upstream_port)

    def _handler(self, upstream_port: int) -> type[BaseHTTPRequestHandler]:
        proxy = self
        forwarding = super()._handler(upstream_port)

        class Handler(forwarding):  # type: ignore[valid-type,misc]
            disable_nagle_algorithm = True  # headers and body are sent one after the other
            arrived_s = 0.0

            def forward(self) -> None:
                self.arrived_s = time.monotonic()
                super().forward()

            def send_response_only(self, code: int, message: str | None = None) -> None:
                time.sleep(max(0.0, self.arrived_s + proxy.delay_s - time.monotonic()))
                proxy.answered.append(Answered(self.command, self.path, self.arrived_s, time.monotonic()))
                super().send_response_only(code, message)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

        return Handler
