"""How a process speaks to a Spark Connect server: what it sends, and under which protection."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import grpc
import pytest

from milepost.protocol.records.errors import EnvironmentUnusable
from milepost.spark.driver.engines import connect
from milepost.spark.driver.engines.connect import _Channel
from milepost.spec.values.spark_remote import TOKEN_VARIABLE, parse_remote


@pytest.mark.parametrize(
    ("address", "token", "sent", "encrypted"),
    [
        ("sc://spark.example:15002", None, None, False),
        ("sc://spark.example:15002", "", None, False),
        ("sc://spark.example:15002", "secret", "secret", True),
        ("sc://spark.example:15002/;use_ssl=true", "", None, True),
        ("sc://localhost:15002", "", None, False),
        ("sc://localhost:15002", "secret", "secret", False),
    ],
)
def test_a_token_goes_to_another_machine_by_tls_alone_and_an_empty_one_is_none(
    monkeypatch: pytest.MonkeyPatch, address: str, token: str | None, sent: str | None, encrypted: bool
) -> None:
    if token is None:
        monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(TOKEN_VARIABLE, token)
    channel = _Channel(parse_remote(address), str(uuid4()))
    assert (channel.token, channel.is_encrypted) == (sent, encrypted)


@pytest.fixture(params=[b"", b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"], ids=["silent", "HTTP/1"])
def stranger(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a server that does not speak gRPC."""

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(request.param)
            self.request.recv(1 << 16)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        yield server.server_address[1]
        server.shutdown()
        serving.join()


def test_what_does_not_speak_grpc_is_no_spark_connect_server(monkeypatch: pytest.MonkeyPatch, stranger: int) -> None:
    monkeypatch.setattr(connect, "ANSWER_S", 1.0)
    with pytest.raises(EnvironmentUnusable, match="does not answer as a Spark Connect server without TLS within 1 s"):
        connect._reach(parse_remote(f"sc://localhost:{stranger}"))


def test_a_port_without_a_server_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(EnvironmentUnusable, match=f"no Spark Connect server answers at sc://localhost:{port}"):
        connect._reach(parse_remote(f"sc://localhost:{port}"))


def test_whoever_speaks_grpc_is_asked_for_a_session_next() -> None:
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            connect._reach(parse_remote(f"sc://127.0.0.1:{port}"))
        finally:
            server.stop(None).wait()
