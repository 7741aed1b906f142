"""How a process speaks to a Spark Connect server: what it sends, and under which protection."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import grpc
import pytest

from milepost.errors import EnvironmentUnusable, SparkLost
from milepost.language.spark_remote import TOKEN_VARIABLE, parse_remote
from milepost.spark.driver.engines import channel, connect
from milepost.spark.driver.engines.channel import Channel, require_server
from milepost_testkit import wording


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
    opened = Channel(parse_remote(address), str(uuid4()))
    assert (opened.token, opened.is_encrypted) == (sent, encrypted)


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
    monkeypatch.setattr(channel, "ANSWER_S", 1.0)
    with wording.raises(EnvironmentUnusable):
        require_server(parse_remote(f"sc://localhost:{stranger}"))


def test_a_port_without_a_server_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with wording.raises(EnvironmentUnusable) as refused:
        require_server(parse_remote(f"sc://localhost:{port}"))
    assert str(port) in str(refused.value)


def test_a_server_that_dies_before_its_response_is_reported_as_lost_and_not_as_lacking_tls() -> None:
    """As one that is killed, or is stopped for an update, while an epoch begins: it is known within a second or two."""
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as threads:
        threads.submit(_go_at_once, listening)
        with wording.raises(SparkLost):
            require_server(parse_remote(f"sc://localhost:{listening.getsockname()[1]}"))
    assert time.monotonic() - began < channel.ANSWER_S / 2


def _go_at_once(listening: socket.socket) -> None:
    """Accept the connection that only checks whether a server listens."""
    listening.accept()[0].close()
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


@pytest.mark.filterwarnings("ignore:.RETRIES_EXCEEDED")
def test_a_server_that_dies_before_its_session_is_open_is_reported_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_RETRIES", 0)
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        port = server.add_insecure_port("127.0.0.1:0")
        server.add_generic_rpc_handlers((_Leaving(),))
        server.start()
        try:
            with wording.raises(SparkLost):
                connect._opened(parse_remote(f"sc://127.0.0.1:{port}"), str(uuid4()))
        finally:
            server.stop(None).wait()


class _Leaving(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers every request as a server does that is shutting down."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: context.abort(grpc.StatusCode.UNAVAILABLE, "shutting down")
        )


def test_a_server_that_no_longer_listens_is_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with wording.raises(SparkLost):
        require_server(parse_remote(f"sc://localhost:{port}"), served_before=True)


def test_a_server_that_speaks_grpc_is_probed_for_a_session_next() -> None:
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            require_server(parse_remote(f"sc://127.0.0.1:{port}"))
        finally:
            server.stop(None).wait()
