"""An HTTP forwarder before a real S3 server that holds requests back: a write stays in flight while a test likes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from milepost_testkit.proxies.recording_proxy import RecordingProxy

Matches = Callable[[str, str, bytes], bool]
"""Called with (method, path, body) of a request that has arrived and is not forwarded yet."""


@dataclass
class Hold:
    """Requests that match wait for `release`, also those that a client sends when it gave up on the first.

    Attributes:
        peers: ports of loopback that the requests came from.
    """

    matches: Matches
    peers: list[int] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    forwarded: threading.Event = field(default_factory=threading.Event)

    def wait_for_arrival(self, timeout_s: float) -> None:
        """Wait until the request is there. Raises TimeoutError."""
        if not self.arrived.wait(timeout_s):
            raise TimeoutError(f"not within {timeout_s:.0f} s: the request that is to be held")

    def release(self, timeout_s: float = 120.0) -> None:
        """Let the requests go on to the server, late as they are, and wait until one has been answered."""
        self.released.set()
        if not self.forwarded.wait(timeout_s):
            raise TimeoutError(f"not within {timeout_s:.0f} s: the server's answer to the held request")


class HoldingProxy(RecordingProxy):
    """Forwards to 127.0.0.1:<upstream_port>, except what a hold keeps."""

    def __init__(self, upstream_port: int) -> None:
        self._holds: list[Hold] = []
        self._choosing = threading.Lock()
        super().__init__(upstream_port)

    def hold(self, matches: Matches) -> Hold:
        """Keep every request that matches from now on until they are released."""
        hold = Hold(matches)
        self._holds.append(hold)
        return hold

    def release_all(self) -> None:
        """End every hold, also those that nothing has met."""
        for hold in self._holds:
            hold.arrived.set()
            hold.released.set()

    def _due(self, method: str, path: str, body: bytes, peer: int) -> Hold | None:
        with self._choosing:
            for hold in self._holds:
                if not hold.released.is_set() and hold.matches(method, path, body):
                    hold.peers.append(peer)
                    hold.arrived.set()
                    return hold
        return None

    def _handler(self, upstream_port: int) -> type[BaseHTTPRequestHandler]:
        proxy = self
        forwarding = super()._handler(upstream_port)

        class Handler(forwarding):  # type: ignore[valid-type,misc]
            def relay(self, body: bytes) -> None:
                hold = proxy._due(self.command, self.path, body, self.client_address[1])
                if hold is not None:
                    hold.released.wait()
                with suppress(ConnectionError):  # whoever waited for the answer may have been killed
                    super().relay(body)
                if hold is not None:
                    hold.forwarded.set()

        return Handler
