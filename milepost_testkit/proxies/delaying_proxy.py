"""An HTTP relay before a real S3 server that answers each request a while later, as a store far away does."""

from __future__ import annotations

import asyncio
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Sequence
from dataclasses import dataclass

from milepost_testkit.proxies.http_relay import END, HttpRelay, body_after, header

CONTINUE = "CONTINUE"
"""The method of a wait for leave to send a body: no request, and as long as one."""

_CONTINUE = b"HTTP/1.1 100 Continue" + END


@dataclass(frozen=True)
class Answered:
    """One request that was answered: when it had arrived, and when its answer went off, on one monotonic clock."""

    method: str
    path: str
    arrived_s: float
    answered_s: float


def line_of(requests: Sequence[Answered]) -> list[Answered]:
    """Return as many requests as waited for one another: each arrived after the one before was answered."""
    line = list[Answered]()
    for request in sorted(requests, key=lambda one: one.answered_s):
        if not line or request.arrived_s >= line[-1].answered_s:
            line.append(request)
    return line


def longest_line(requests: Sequence[Answered]) -> int:
    """Return how many requests at most waited for one another."""
    return len(line_of(requests))


class DelayingProxy(HttpRelay):
    """Relays to 127.0.0.1:<upstream_port>; an answer goes off no sooner than `delay_s` after its request had arrived.

    Use as a context manager. It takes little of the machine, so that what is timed behind it is not its own work.

    Attributes:
        endpoint_url: what clients use instead of the server's. answered: all requests so far, in order of answers.
    """

    def __init__(self, upstream_port: int, delay_s: float) -> None:
        self.answered: list[Answered] = []
        self._delay_s = delay_s
        super().__init__(upstream_port)

    async def _exchange(
        self, reader: StreamReader, writer: StreamWriter, upstream: StreamReader, up: StreamWriter
    ) -> bool:
        head = await reader.readuntil(END)
        method, path, _ = head.split(b" ", 2)
        if header(head, b"expect"):  # the body waits for an answer of its own
            asked_s = time.monotonic()
            await asyncio.sleep(self._delay_s)
            self.answered.append(Answered(CONTINUE, path.decode(), asked_s, time.monotonic()))
            writer.write(_CONTINUE)
        body = await body_after(reader, head)
        arrived_s = time.monotonic()
        up.write(head + body)
        reply = await upstream.readuntil(END)
        while reply.startswith(b"HTTP/1.1 100"):
            reply = await upstream.readuntil(END)
        content = b"" if method == b"HEAD" else await body_after(upstream, reply)
        await asyncio.sleep(max(0.0, arrived_s + self._delay_s - time.monotonic()))
        self.answered.append(Answered(method.decode(), path.decode(), arrived_s, time.monotonic()))
        writer.write(reply + content)
        return True
