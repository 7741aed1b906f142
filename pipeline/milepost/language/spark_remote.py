"""Parse the address of a Spark Connect server: `sc://host[:port][/;use_ssl=true]`.

A token in the address is refused, because specs are stored, logged and shown.
"""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass, field

DEFAULT_PORT = 15002
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""Environment variable with the server's token. Spark's client and server use the same name."""

REMOTE_VARIABLE = "MILEPOST_SPARK_REMOTE"
"""Environment variable with the address of a server, read by the specs that `milepost init` writes."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class SparkRemote:
    """Address of a Spark Connect server.

    Attributes:
        conn_id: the Connection that the address is from; None: the spec.
        token: token of that Connection; None: the token in the environment, if any.
    """

    host: str
    port: int
    tls: bool
    conn_id: str | None = None
    token: str | None = field(default=None, repr=False)

    @property
    def origin(self) -> str:
        """The place where a user can correct the address."""
        return f"Connection {self.conn_id}" if self.conn_id is not None else "`spark.remote`"

    @property
    def is_loopback(self) -> bool:
        return self.host in _LOOPBACK

    @property
    def url(self) -> str:
        """The address without parameters."""
        return f"sc://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def parse_remote(text: str) -> SparkRemote:
    """Parse an address. Raises ValueError; its message does not quote the address, which may contain a secret."""
    if not text.startswith("sc://"):
        raise ValueError("expected the address of a Spark Connect server, sc://host:port")
    try:
        parts = urllib.parse.urlsplit("http" + text.removeprefix("sc"))
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("expected sc://host:port, with a port number from 1 to 65535") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"expected no user name and password; the token comes from {TOKEN_VARIABLE}")
    path, _, parameters = parts.path.partition(";")
    if not host or port == 0 or path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("expected sc://host:port, optionally followed by /;use_ssl=true")
    tls = False
    for parameter in filter(None, parameters.split(";")):
        name, _, value = parameter.partition("=")
        if name == "token":
            raise ValueError(f"expected no token; it comes from the environment variable {TOKEN_VARIABLE}")
        if name != "use_ssl" or value not in ("true", "false"):
            raise ValueError(f"expected no parameter except use_ssl=true, got `{name}`")
        tls = value == "true"
    return SparkRemote(host, DEFAULT_PORT if port is None else port, tls)


def remote_problem(text: str) -> str | None:
    """Return why a text is not a valid address, or None."""
    try:
        parse_remote(text)
    except ValueError as problem:
        return str(problem)
    return None
