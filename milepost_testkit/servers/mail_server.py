"""A mail server on a free port of loopback, which keeps what it is given: as much of SMTP as a client needs."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from typing import cast


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails: list[Message] = []


class _Session(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = cast(_Server, self.server)
        self._say("220 here")
        for line in self.rfile:
            command = line.strip().upper()
            if command.startswith(b"QUIT"):
                return self._say("221 bye")
            if command != b"DATA":
                self._say("250 ok")
                continue
            self._say("354 go on")
            server.mails.append(message_from_bytes(self._data()))
            self._say("250 kept")
        return None

    def _data(self) -> bytes:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        return b"".join(lines)

    def _say(self, reply: str) -> None:
        self.wfile.write(f"{reply}\r\n".encode())


class MailServer:
    """Where a mail goes, and what has come."""

    def __init__(self, server: _Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def mails(self) -> list[Message]:
        return list(self._server.mails)


@contextmanager
def mail_server() -> Iterator[MailServer]:
    """Run a mail server for the block."""
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield MailServer(server)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
