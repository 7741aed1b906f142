"""An HTTP relay before a real S3 server that answers each request a while later, as a store far away does."""

from __future__ import annotations

import asyncio
import threading
import time
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

CONTINUE = "CONTINUE"
"""The method of a wait for leave to send a body: no request, and as long as one."""

_END = b"\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue" + _END


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


class DelayingProxy:
    """Relays to 127.0.0.1:<upstream_port>; an answer goes off no sooner than `delay_s` after its request had arrived.

    Use as a context manager. It takes little of the machine, so that what is timed behind it is not its own work.

    Attributes:
        endpoint_url: what clients use instead of the server's. answered: all requests so far, in order of answers.
    """

    def __init__(self, upstream_port: int, delay_s: float) -> None:
        self.answered: list[Answered] = []
        self._upstream_port, self._delay_s = upstream_port, delay_s
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.endpoint_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> DelayingProxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _close(self) -> None:
        """Take no more connections, and end those that there are."""
        self._server.close()
        relays = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for relay in relays:
            relay.cancel()
        await asyncio.gather(*relays, return_exceptions=True)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Relay the requests of one connection, one after another, over one connection to the server."""
        upstream, up = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        with suppress(IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(_END)
                method, path, _ = head.split(b" ", 2)
                if _header(head, b"expect"):  # the body waits for an answer of its own
                    asked_s = time.monotonic()
                    await asyncio.sleep(self._delay_s)
                    self.answered.append(Answered(CONTINUE, path.decode(), asked_s, time.monotonic()))
                    writer.write(_CONTINUE)
                body = await _body(reader, head)
                arrived_s = time.monotonic()
                up.write(head + body)
                reply = await upstream.readuntil(_END)
                while reply.startswith(b"HTTP/1.1 100"):
                    reply = await upstream.readuntil(_END)
                content = b"" if method == b"HEAD" else await _body(upstream, reply)
                await asyncio.sleep(max(0.0, arrived_s + self._delay_s - time.monotonic()))
                self.answered.append(Answered(method.decode(), path.decode(), arrived_s, time.monotonic()))
                writer.write(reply + content)
        up.close()
        writer.close()


async def _body(reader: StreamReader, head: bytes) -> bytes:
    """Return the body that follows a head, as it is sent."""
    if _header(head, b"transfer-encoding") == b"chunked":
        body, size = b"", 1
        while size:
            line = await reader.readuntil(b"\r\n")
            size = int(line, 16)
            body += line + await reader.readexactly(size + 2)
        return body
    return await reader.readexactly(int(_header(head, b"content-length") or 0))


def _header(head: bytes, name: bytes) -> bytes:
    """Return a header's value, in small letters; empty when it is not there."""
    _, found, rest = head.lower().partition(b"\r\n" + name + b":")
    return rest.partition(b"\r\n")[0].strip() if found else b""
