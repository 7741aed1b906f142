"""A relay stands before a server of this machine, in a thread, and takes little of the machine."""

from __future__ import annotations

import asyncio
import threading
from asyncio import StreamReader, StreamWriter
from types import TracebackType
from typing import Self

LOOPBACK = "127.0.0.1"


class Relay:
    """Stands before 127.0.0.1:<upstream_port>. Use as a context manager.

    Args:
        address, port: where it listens; 0: a free port.

    Attributes:
        port: where it listens.
    """

    def __init__(self, upstream_port: int, address: str = LOOPBACK, port: int = 0) -> None:
        self._upstream_port = upstream_port
        self._loop = asyncio.new_event_loop()
        self._relays = set[asyncio.Task[None] | None]()
        """References to asyncio's tasks, which are otherwise collected with their connections while they wait."""
        self._server = self._loop.run_until_complete(asyncio.start_server(self._connected, address, port))
        self.port = int(self._server.sockets[0].getsockname()[1])
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
        """Relay one connection over one connection to the server."""
        raise NotImplementedError
