"""Channels to a Spark Connect server protect what goes there; before one is used, somebody has to answer."""

from __future__ import annotations

import socket
import uuid

import grpc
from pyspark.sql.connect.client import DefaultChannelBuilder

from milepost.errors import EnvironmentUnusable, SparkLost
from milepost.jobspec.values import SparkRemote

ANSWER_S = 30.0
"""How long a server may take to answer at all, on a busy machine: within it TLS and the token are settled."""

_POLL_S = 1.0
"""While an answer is waited for, it is checked this often that somebody still listens."""

_HEALTH = "/grpc.health.v1.Health/Check"
"""A call that anybody may make of a gRPC server; an empty body is its request."""


class Channel(DefaultChannelBuilder):
    """Spark's channel, except on loopback: there without a proxy, and without TLS whatever loopback is called."""

    def __init__(self, remote: SparkRemote, session_id: str) -> None:
        super().__init__(f"{remote.url}/;session_id={session_id};use_ssl={str(remote.tls).lower()}")
        self._is_local = remote.is_loopback and not remote.tls
        self._token = remote.token
        if remote.is_loopback:
            self.setChannelOption("grpc.enable_http_proxy", 0)

    @property
    def token(self) -> str | None:
        """The Connection's, or as Spark finds it; an empty one is none, as in a shell that cannot unset one."""
        return self._token or super().token or None

    @property
    def is_encrypted(self) -> bool:
        """Whether it uses TLS: where that was asked for, and wherever else a token goes to another machine."""
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
    """Check that something listens at an address and speaks gRPC as that says, within seconds.

    Args:
        served_before: whether this process has run an epoch there: then the address is right.
    Raises:
        SparkLost: what listened there has gone.
        EnvironmentUnusable: nobody listens, or whoever does speaks something else.
    """
    problem = _connect_problem(remote)
    if problem is not None and served_before:
        raise server_lost(remote, f"does not answer any more ({problem})")
    if problem is not None:
        raise EnvironmentUnusable(
            f"no Spark Connect server answers at {remote.url}: {problem}. Nothing was run.",
            hint=f"start it, or correct {remote.origin}; `milepost spark-server` starts one",
            remote=remote.url,
        )
    asking = Channel(remote, str(uuid.uuid4()))
    with asking.toChannel() as channel:
        # Not `channel_ready_future`: to close a channel that it has watched takes a fifth of a second. Spark does not
        # have this service: it answers so, opens no session and logs nothing.
        answer = channel.unary_unary(_HEALTH).future(b"", timeout=ANSWER_S, wait_for_ready=True)
        while not _answered(answer):
            if (problem := _connect_problem(remote)) is not None:
                answer.cancel()
                raise server_lost(remote, f"went away before its first answer ({problem})")
        if answer.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            return  # it speaks gRPC; what it does not like, it says when the session is opened
        tls = "with TLS" if asking.is_encrypted else "without TLS"
        raise EnvironmentUnusable(
            f"what listens at {remote.url} does not answer as a Spark Connect server {tls} within {ANSWER_S:.0f} s. "
            "Nothing was run.",
            hint=f"correct {remote.origin}; a token is sent without TLS only to this machine itself",
            remote=remote.url,
        )


def server_lost(remote: SparkRemote, what: str, now_true: str = "Nothing was run.") -> SparkLost:
    """Return what to raise for a server that was there. Args: what: the verb and more. now_true: a sentence."""
    return SparkLost(
        f"the Spark Connect server at {remote.url} {what}. {now_true}",
        hint="see the server's log; once it runs, run again",
        remote=remote.url,
    )


def _connect_problem(remote: SparkRemote) -> str | None:
    """Return why no connection to an address can be made; None: somebody listens."""
    try:
        socket.create_connection((remote.host, remote.port), ANSWER_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _answered(answer: grpc.Future) -> bool:
    """Wait `_POLL_S` for an answer, or for its failure. Returns whether either has come."""
    try:
        answer.exception(_POLL_S)
    except grpc.FutureTimeoutError:
        return False
    return True
