"""A TCP forwarder before a Postgres server that cuts a move at its COMMIT: before, after, or while it is held."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from enum import Enum

_BYTES = 1 << 16


class Cut(Enum):
    """Fate of a COMMIT: it is lost; its response is lost; or it reaches the server once the head is read."""

    LOSE_COMMIT = "the server never gets it"
    LOSE_ANSWER = "the client never hears of it"
    HOLD_COMMIT = "the server gets it when another session waits for the row"


class CuttingProxy:
    """Forwards to 127.0.0.1:<upstream_port>; the COMMIT of the next move after `cut` is treated as it says, once.

    Attributes:
        port: where it listens. cuts: how many were made.
    """

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._cut: Cut | None = None
        self._choosing = threading.Lock()
        self._asked_for = threading.Event()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._answered = threading.Event()
        self._loses_answer_of: socket.socket | None = None
        self._goes_down = False
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._start(self._accept)

    def cut(self, cut: Cut) -> None:
        """Treat the next COMMIT so."""
        self._asked_for.clear()
        self._answered.clear()
        self._cut = cut

    def down_after_cut(self) -> None:
        """Accept no more connections after a cut."""
        self._goes_down = True

    def stop(self) -> None:
        for each in (self._listener, *self._sockets):
            _close(each)
        self._asked_for.set()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._upstream_port))
            except OSError:
                return
            self._sockets += [client, server]
            self._start(self._forward, client, server)
            self._start(self._answer, server, client)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        moves = False
        for said in _received(client):
            moves = moves or b"SET number" in said
            cut = self._due() if moves and b"COMMIT\0" in said else None
            if cut is None:
                with contextlib.suppress(OSError):
                    server.sendall(said)
                if b"FOR UPDATE" in said:
                    self._asked_for.set()
                continue
            if cut is Cut.LOSE_ANSWER:  # the commit is done when the client learns that its connection is lost
                self._loses_answer_of = server
                with contextlib.suppress(OSError):
                    server.sendall(said)
                self._answered.wait(60)
                _close(client)
                return
            _close(client)
            if cut is Cut.HOLD_COMMIT:
                self._asked_for.wait(60)
            if cut is not Cut.LOSE_COMMIT:
                with contextlib.suppress(OSError):
                    server.sendall(said)
                    return  # the server ends its session when it next speaks to nobody
            _close(server)
            return
        _close(server)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        for said in _received(server):
            if server is self._loses_answer_of:
                self._answered.set()
                break
            try:
                client.sendall(said)
            except OSError:
                break
        _close(server)
        _close(client)

    def _due(self) -> Cut | None:
        with self._choosing:
            cut, self._cut = self._cut, None
            self.cuts += cut is not None
            if cut is not None and self._goes_down:
                _close(self._listener)
            return cut

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()


def _received(source: socket.socket) -> Iterator[bytes]:
    while True:
        try:
            said = source.recv(_BYTES)
        except OSError:
            return
        if not said:
            return
        yield said


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
