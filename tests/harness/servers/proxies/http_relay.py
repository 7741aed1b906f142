"""What relays of HTTP have in common: a server of loopback in a thread, where a head ends, and what follows it."""

from __future__ import annotations

import asyncio
import threading
from asyncio import StreamReader, StreamWriter
from types import TracebackType
from typing import Self

END = b"\r\n\r\n"
"""Of a head."""


class HttpRelay:
    """Stands before 127.0.0.1:<upstream_port>. Use as a context manager; it takes little of the machine.

    Attributes:
        endpoint_url: what clients use instead of the server's.
    """

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._loop = asyncio.new_event_loop()
        self._relays = set[asyncio.Task[None] | None]()
        """Those of asyncio's tasks that nobody holds are collected with their connections, while they wait."""
        self._server = self._loop.run_until_complete(asyncio.start_server(self._connected, "127.0.0.1", 0))
        self.endpoint_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
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
        while relays := asyncio.all_tasks() - {asyncio.current_task()}:
            for relay in relays:
                relay.cancel()
            await asyncio.wait(relays)

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        relay = asyncio.current_task()
        self._relays.add(relay)
        try:
            await self._serve(reader, writer)
        finally:
            self._relays.discard(relay)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Relay the requests of one connection, one after another, over one connection to the server."""
        raise NotImplementedError


async def body_after(reader: StreamReader, head: bytes) -> bytes:
    """Return the body that follows a head, as it is sent."""
    if header(head, b"transfer-encoding") == b"chunked":
        body, size = b"", 1
        while size:
            line = await reader.readuntil(b"\r\n")
            size = int(line, 16)
            body += line + await reader.readexactly(size + 2)
        return body
    return await reader.readexactly(int(header(head, b"content-length") or 0))


def header(head: bytes, name: bytes) -> bytes:
    """Return a header's value, in small letters; empty when it is not there."""
    _, found, rest = head.lower().partition(b"\r\n" + name + b":")
    return rest.partition(b"\r\n")[0].strip() if found else b""
