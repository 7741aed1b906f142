"""kill -9 of a Spark Connect server, right before a request that this process makes to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import psutil
import pytest

from milepost.spark.driver.engines.channel import Channel
from milepost_testkit.servers.connect_server import ConnectServer
from scripts.stack import SPARK

Asked = Callable[[str], bool]


@dataclass
class Calls:
    """This process's requests to a server, and the request before which the server dies.

    Attributes:
        made: names of the calls of the main thread since the last kill. deaths: how often it was killed.
    """

    server: ConnectServer
    made: list[str] = field(default_factory=list)
    deaths: int = 0
    _due: Asked | None = None

    @contextmanager
    def dies(self, due: Asked) -> Iterator[None]:
        """Kill the server right before the first request that is due; fail where none was by the end of the block."""
        before = self.deaths
        self.made.clear()
        self._due = due
        yield
        self._due = None
        assert self.deaths == before + 1, "no request was the one before which the server was to die"

    def asked(self, call: str) -> None:
        # What a thread of PySpark asks, as to let go of an answer, comes at no moment of its own.
        if threading.current_thread() is not threading.main_thread():
            return
        self.made.append(call)
        if self._due is not None and self._due(call):
            self._due = None
            self.kill()
            self.deaths += 1

    def kill(self) -> None:
        """End the server, and its Python workers, without a word."""
        processes = self.server.processes
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, 60)
        self.server.stack.stop(SPARK)


class _Told(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
):
    """Tells of each request before it is made."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def _pass_on(self, goes_on: Callable[..., Any], details: Any, request: Any) -> Any:
        self._calls.asked(details.method.rpartition("/")[2])
        return goes_on(details, request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = _pass_on


def calls_to(server: ConnectServer, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What this process asks of a server from now on."""
    calls, opened = Calls(server), Channel.toChannel

    def told(channel: Channel) -> grpc.Channel:
        return grpc.intercept_channel(opened(channel), _Told(calls))

    monkeypatch.setattr(Channel, "toChannel", told)
    return calls
