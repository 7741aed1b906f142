"""kill -9 of the JVM that this process drives, right before a request to it; without the driver, which is to tell."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil
import pytest
from py4j.clientserver import ClientServerConnection

Asked = Callable[[str], bool]


@dataclass
class Requests:
    """This process's requests to its JVM, and the request at which the JVM dies.

    Attributes:
        made: those of the main thread since the last kill. killed: JVMs.
    """

    made: list[str] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    _due: Asked | None = None

    @contextmanager
    def dies(self, due: Asked) -> Iterator[None]:
        """Kill the JVM right before the first request that is due; fail where none was by the end of the block."""
        before = len(self.killed)
        self.made.clear()
        self._due = due
        yield
        self._due = None
        assert len(self.killed) == before + 1, "no request was the one at which the JVM was to die"

    def asked(self, request: str) -> None:
        # Objects that Python has done with are told by whatever thread collects them, at no moment of their own.
        if request.startswith("m\n") or threading.current_thread() is not threading.main_thread():
            return
        self.made.append(request)
        if self._due is not None and self._due(request):
            self._due = None
            (jvm,) = jvms()
            jvm.kill()
            psutil.wait_procs([jvm], 60)
            self.killed.append(jvm.pid)


def requests_to_the_jvm(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """What this process asks of its JVM from now on."""
    requests, send = Requests(), ClientServerConnection.send_command

    def told(connection: ClientServerConnection, command: str, *arguments: object) -> object:
        requests.asked(command)
        return send(connection, command, *arguments)

    monkeypatch.setattr(ClientServerConnection, "send_command", told)
    return requests


def jvms() -> list[psutil.Process]:
    """The JVMs that this process has started and that live."""
    return [child for child in psutil.Process().children() if child.name() == "java" and child.is_running()]


def with_words(words: str) -> Asked:
    """A request whose text has a match."""
    return lambda request: re.search(words, request) is not None


def number(count: int) -> Asked:
    """The request with this number, from 0."""
    left = iter(range(count, -1, -1))
    return lambda request: next(left) == 0
