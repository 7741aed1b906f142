"""The address of a Spark Connect server in a spec: `sc://host[:port][/;use_ssl=true]`.

The token never stands there: what stands in a spec is pinned, logged and shown.
"""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass, field

DEFAULT_PORT = 15002
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""Environment variable with the token of the server; Spark's own name for it, on both sides."""

REMOTE_VARIABLE = "MILEPOST_SPARK_REMOTE"
"""Environment variable with the address of a server; the specs that `milepost init` writes read it."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class SparkRemote:
    """Where a Spark Connect server answers, and whether TLS is asked for.

    Attributes:
        conn_id: of the Connection that says so; None: it is the spec.
        token: of that Connection; None: the one of the environment, if there is one.
    """

    host: str
    port: int
    tls: bool
    conn_id: str | None = None
    token: str | None = field(default=None, repr=False)

    @property
    def origin(self) -> str:
        """Where the address can be corrected."""
        return f"Connection {self.conn_id}" if self.conn_id is not None else "`spark.remote`"

    @property
    def is_loopback(self) -> bool:
        return self.host in _LOOPBACK

    @property
    def url(self) -> str:
        """The address without parameters."""
        return f"sc://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def parse_remote(text: str) -> SparkRemote:
    """Read an address. Raises ValueError: says what is wrong, without repeating what may be a secret."""
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
        raise ValueError("expected sc://host:port, and nothing behind it but /;use_ssl=true")
    tls = False
    for parameter in filter(None, parameters.split(";")):
        name, _, value = parameter.partition("=")
        if name == "token":
            raise ValueError(f"no token here: it comes from the environment variable {TOKEN_VARIABLE}")
        if name != "use_ssl" or value not in ("true", "false"):
            raise ValueError(f"expected no parameter but use_ssl=true, got `{name}`")
        tls = value == "true"
    return SparkRemote(host, DEFAULT_PORT if port is None else port, tls)


def remote_problem(text: str) -> str | None:
    """Return why a text is no address; None when it is one."""
    try:
        parse_remote(text)
    except ValueError as problem:
        return str(problem)
    return None
