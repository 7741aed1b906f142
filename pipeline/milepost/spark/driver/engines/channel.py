"""Secure gRPC channels to a Spark Connect server, and a check that it answers."""

from __future__ import annotations

import socket
import uuid

import grpc
from pyspark.sql.connect.client import DefaultChannelBuilder

from milepost.errors import EnvironmentUnusable, SparkLost
from milepost.language import SparkRemote

ANSWER_S = 30.0
"""Timeout of a server's first answer on a busy machine, including the TLS handshake."""

_POLL_S = 1.0
"""Interval of the checks that the server still listens, while it has not answered."""

_HEALTH = "/grpc.health.v1.Health/Check"
"""The health check of gRPC, which needs no authorisation. Its request is an empty body."""


class Channel(DefaultChannelBuilder):
    """Spark's channel. On loopback it bypasses proxies, and uses TLS only if the address asks for it."""

    def __init__(self, remote: SparkRemote, session_id: str) -> None:
        super().__init__(f"{remote.url}/;session_id={session_id};use_ssl={str(remote.tls).lower()}")
        self._is_local = remote.is_loopback and not remote.tls
        self._token = remote.token
        if remote.is_loopback:
            self.setChannelOption("grpc.enable_http_proxy", 0)

    @property
    def token(self) -> str | None:
        """The Connection's token, or Spark's own. An empty token counts as none, for shells that cannot unset one."""
        return self._token or super().token or None

    @property
    def is_encrypted(self) -> bool:
        """Whether the channel uses TLS: if it was requested, or if a token is sent to another machine."""
        return bool(self.secure) and not self._is_local

    def toChannel(self) -> grpc.Channel:
        if not self._is_local:
            return super().toChannel()
        credentials = grpc.local_channel_credentials()
        if self.token:
            called = grpc.access_token_call_credentials(self.token)
            credentials = grpc.composite_channel_credentials(credentials, called)
        return self._secure_channel(self.endpoint, credentials)


def require_server(remote: SparkRemote, *, served_before: bool = False) -> None:
    """Check within seconds that a gRPC server listens at an address.

    Args:
        served_before: whether this process has run an epoch there, which shows that the address is right.

    Raises:
        SparkLost: the server no longer listens.
        EnvironmentUnusable: nothing listens, or it is no gRPC server with the expected TLS.
    """
    problem = _connect_problem(remote)
    if problem is not None and served_before:
        raise server_lost(remote, f"no longer responds ({problem})")
    if problem is not None:
        raise EnvironmentUnusable(
            f"no Spark Connect server answers at {remote.url}: {problem}. Nothing was run.",
            hint=f"start it, or correct {remote.origin}; `milepost spark-server` starts one",
            remote=remote.url,
        )
    builder = Channel(remote, str(uuid.uuid4()))
    with builder.toChannel() as channel:
        # Not `channel_ready_future`: closing a channel that it watches takes 0.2 s. Spark does not implement this
        # service. It answers UNIMPLEMENTED, opens no session and logs nothing.
        answer = channel.unary_unary(_HEALTH).future(b"", timeout=ANSWER_S, wait_for_ready=True)
        while not _answered(answer):
            if (problem := _connect_problem(remote)) is not None:
                answer.cancel()
                raise server_lost(remote, f"disconnected before its first answer ({problem})")
        if answer.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            return  # it speaks gRPC; opening the session reports any other problem
        tls = "with TLS" if builder.is_encrypted else "without TLS"
        raise EnvironmentUnusable(
            f"what listens at {remote.url} does not answer as a Spark Connect server {tls} within {ANSWER_S:.0f} s. "
            "Nothing was run.",
            hint=f"correct {remote.origin}; a token is sent without TLS only to this machine itself",
            remote=remote.url,
        )


def server_lost(remote: SparkRemote, what: str, now_true: str = "Nothing was run.") -> SparkLost:
    """Return the error for a server that stopped answering.

    Args:
        what: predicate of the message, from the verb on.
        now_true: sentence that states what is true now.
    """
    return SparkLost(
        f"the Spark Connect server at {remote.url} {what}. {now_true}",
        hint="see the server's log; once it runs, run again",
        remote=remote.url,
    )


def _connect_problem(remote: SparkRemote) -> str | None:
    """Return why no connection to an address can be made; None if a server listens."""
    try:
        socket.create_connection((remote.host, remote.port), ANSWER_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _answered(answer: grpc.Future) -> bool:
    """Wait `_POLL_S` for an answer. Return whether it has arrived or failed."""
    try:
        answer.exception(_POLL_S)
    except grpc.FutureTimeoutError:
        return False
    return True
