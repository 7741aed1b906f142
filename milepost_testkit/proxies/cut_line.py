"""A relay of bytes before a server, by which some of its clients can be cut off from it."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, StreamReader, StreamWriter
from collections.abc import Container
from contextlib import suppress

from milepost_testkit.proxies.relay import LOOPBACK, Relay

_BYTES = 1 << 16


class CutLine(Relay):
    """Relays data both ways, until one of the two ends it or the connection is cut."""

    def __init__(self, upstream_port: int, address: str = LOOPBACK, port: int = 0) -> None:
        self._ends: dict[int, tuple[StreamWriter, StreamWriter]] = {}
        super().__init__(upstream_port, address, port)

    def cut(self, peers: Container[int]) -> int:
        """Break the connections from these ports, as a lost network does; return how many."""

        async def broken() -> int:
            met = [self._ends[peer] for peer in self._ends if peer in peers]
            for end in (end for ends in met for end in ends):
                end.transport.abort()
            return len(met)

        return asyncio.run_coroutine_threadsafe(broken(), self._loop).result(10)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        peer = int(writer.get_extra_info("peername")[1])
        with suppress(ConnectionError):  # nobody listens there any more
            upstream, up = await asyncio.open_connection(LOOPBACK, self._upstream_port)
            self._ends[peer] = writer, up
            await asyncio.gather(_pass_on(reader, up), _pass_on(upstream, writer))
            self._ends.pop(peer, None)
        writer.close()


async def _pass_on(said: StreamReader, to: StreamWriter) -> None:
    """Forward one end's data; at its end, close the other side."""
    with suppress(ConnectionError, CancelledError):
        while part := await said.read(_BYTES):
            to.write(part)
            await to.drain()
    to.close()
