"""An HTTP relay before a real S3 server on which things go wrong, by a seed."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from enum import Enum
from random import Random

from milepost_testkit.proxies.http_relay import END, HttpRelay, body_after, header


class StorageFault(Enum):
    """What becomes of a request."""

    LOST_REQUEST = "the server never gets it; the connection breaks"
    LOST_REPLY = "the server does it; the connection breaks before its reply"
    DOUBLED = "the server gets it twice; the client hears the second reply: a 412 for its own conditional write"
    UNAVAILABLE = "503 SlowDown; the server never gets it"
    SLOW = "the reply comes seconds later"
    CUT_BODY = "the reply breaks off inside its body"
    STALE_LIST = "a listing as it was when it was asked for last"
    CLOCK_AHEAD = "for the next requests the server's clock is an hour ahead"
    CLOCK_BEHIND = "for the next requests the server's clock is an hour behind"


_WHOLE = (StorageFault.LOST_REQUEST, StorageFault.LOST_REPLY, StorageFault.DOUBLED, StorageFault.UNAVAILABLE)
_CLOCKS = {StorageFault.CLOCK_AHEAD: timedelta(hours=1), StorageFault.CLOCK_BEHIND: timedelta(hours=-1)}
_SKEWED_REQUESTS = 20
_SLOW_S = 2.0
_SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)


class FaultyProxy(HttpRelay):
    """Relays to 127.0.0.1:<upstream_port>; while it is not calm, a share of the requests meets a fault.

    Use as a context manager. Which request meets which fault follows from the seed and the order in which they come.

    Attributes:
        endpoint_url: what clients use instead of the server's. rate: share of requests that meet a fault; 0: it is
            calm, its clock is right, and every listing is as it is. faults: those that may be met. met: how often.
    """

    def __init__(self, upstream_port: int, seed: int, faults: Sequence[StorageFault] = tuple(StorageFault)) -> None:
        self.rate = 0.0
        self.faults = tuple(faults)
        self.met: Counter[StorageFault] = Counter()
        self._random = Random(seed)
        self._listed: dict[bytes, bytes] = {}
        self._skew, self._skewed = timedelta(0), 0
        super().__init__(upstream_port)

    async def _exchange(
        self, reader: StreamReader, writer: StreamWriter, upstream: StreamReader, up: StreamWriter
    ) -> bool:
        head = await reader.readuntil(END)
        if header(head, b"expect"):
            writer.write(b"HTTP/1.1 100 Continue" + END)
        request = head + await body_after(reader, head)
        method, path, _ = head.split(b" ", 2)
        fault = self._drawn(method, path)
        if fault is StorageFault.LOST_REQUEST:
            return False
        if fault is StorageFault.UNAVAILABLE:
            length = str(len(_SLOW_DOWN)).encode()
            reply = b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: " + length + END
            writer.write(reply + (b"" if method == b"HEAD" else _SLOW_DOWN))
            return True
        if fault is StorageFault.STALE_LIST:
            writer.write(self._listed[path])
            return True
        reply, content = await self._asked(method, request, upstream, up)
        if fault is StorageFault.LOST_REPLY:
            return False
        if fault is StorageFault.DOUBLED:
            reply, content = await self._asked(method, request, upstream, up)
        if fault is StorageFault.SLOW:
            await asyncio.sleep(_SLOW_S)
        whole = self._dated(reply) + content
        if b"list-type=" in path:
            self._listed[path] = whole
        if fault is StorageFault.CUT_BODY:
            writer.write(whole[: len(whole) - 1 - len(content) // 2])
            return False
        writer.write(whole)
        return True

    async def _asked(
        self, method: bytes, request: bytes, upstream: StreamReader, up: StreamWriter
    ) -> tuple[bytes, bytes]:
        up.write(request)
        reply = await upstream.readuntil(END)
        while reply.startswith(b"HTTP/1.1 100"):
            reply = await upstream.readuntil(END)
        return reply, b"" if method == b"HEAD" else await body_after(upstream, reply)

    def _drawn(self, method: bytes, path: bytes) -> StorageFault | None:
        """Return what becomes of a request; a clock's fault begins with it, and it goes on."""
        if not self.rate:
            self._skewed = 0
            return None
        self._skewed = max(0, self._skewed - 1)
        if self._random.random() >= self.rate:
            return None
        fault = self._random.choice(self.faults)
        if fault is StorageFault.STALE_LIST and path not in self._listed:
            return None
        if fault is StorageFault.CUT_BODY and method != b"GET":
            return None
        self.met[fault] += 1
        if fault in _CLOCKS:
            self._skew, self._skewed = _CLOCKS[fault], _SKEWED_REQUESTS
            return None
        return fault

    def _dated(self, reply: bytes) -> bytes:
        """Return a head with the server's clock as it is just now."""
        said = header(reply, b"date")
        if not self._skewed or not said:
            return reply
        lines = reply.split(b"\r\n")
        moved = format_datetime(parsedate_to_datetime(said.decode()) + self._skew, usegmt=True).encode()
        return b"\r\n".join(b"Date: " + moved if line.lower().startswith(b"date:") else line for line in lines)
