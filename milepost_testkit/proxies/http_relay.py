"""What relays of HTTP have in common: the address that clients use, where a head ends, and what follows it."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, IncompleteReadError, StreamReader, StreamWriter
from contextlib import suppress

from milepost_testkit.proxies.relay import LOOPBACK, Relay

END = b"\r\n\r\n"
"""Of a head."""


class HttpRelay(Relay):
    """Relays the requests of one connection, one after another, over one connection to the server.

    Attributes:
        endpoint_url: what clients use instead of the server's.
    """

    def __init__(self, upstream_port: int) -> None:
        super().__init__(upstream_port)
        self.endpoint_url = f"http://{LOOPBACK}:{self.port}"

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        upstream, up = await asyncio.open_connection(LOOPBACK, self._upstream_port)
        with suppress(IncompleteReadError, ConnectionError, CancelledError):
            while await self._exchange(reader, writer, upstream, up):
                await writer.drain()
        up.close()
        writer.close()

    async def _exchange(
        self, reader: StreamReader, writer: StreamWriter, upstream: StreamReader, up: StreamWriter
    ) -> bool:
        """Relay one request and its answer. Returns whether the connection goes on."""
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
