"""Read Airflow Connections: addresses and credentials of stores, databases and Spark servers.

A spec contains only the id of a Connection. It is looked up when it is needed, not when the spec is read, so only the
id is hashed, stored, logged or shown. Outside Airflow, a Connection is the environment variable AIRFLOW_CONN_<ID>, as
JSON or as a URI, which this module parses without Airflow. Inside Airflow, `milepost.airflow.connections` queries its
secrets backends.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from milepost.errors import EnvironmentUnusable
from milepost.language import SparkRemote, parse_remote
from milepost.protocol.records import Credentials, StoreConfig, endpoint_problem

_HOST = re.compile(r"[A-Za-z0-9.\-\[\]:_]+(/[^@?#\s]*)?")
_NOTHING_DONE = "Nothing was run or changed."


@dataclass(frozen=True, slots=True)
class Connection:
    """The fields of a Connection, with Airflow's names. Its repr shows only id and type.

    Attributes:
        extra: the parsed JSON object of the field `extra`.
    """

    conn_id: str
    conn_type: str
    host: str = field(default="", repr=False)
    port: int | None = field(default=None, repr=False)
    schema: str = field(default="", repr=False)
    login: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)


ConnectionLookup = Callable[[str], Connection]
"""Returns the Connection with an id. Raises EnvironmentUnusable: it does not exist or cannot be read."""


@dataclass(frozen=True, slots=True)
class S3Access:
    """S3 settings of a Connection of type `aws`.

    Attributes:
        endpoint_url: None: AWS. credentials: None: the standard AWS chain.
    """

    endpoint_url: str | None
    region: str
    credentials: Credentials | None


@dataclass(frozen=True, slots=True)
class PostgresAccess:
    """How to reach a Postgres database.

    Attributes:
        origin: where the settings are from, for messages.
        dsn: libpq connection string, with secrets resolved; empty if `parameters` are given.
        parameters: libpq parameters of a Connection.
    """

    origin: str
    dsn: str = field(default="", repr=False)
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """How to reach a schema registry.

    Attributes:
        username, password: of the login; None: there is none.
        ca_location: file of CA certificates; None: those of the library.
    """

    url: str
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    ca_location: str | None = None


def environment_connection(conn_id: str) -> Connection:
    """Return the Connection in AIRFLOW_CONN_<ID>. Raises EnvironmentUnusable, without showing the variable's value."""
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    text = os.environ.get(variable, "")
    if not text:
        raise EnvironmentUnusable(
            f"there is no Connection {conn_id}: the environment variable {variable} is not set. {_NOTHING_DONE}",
            hint=f"set {variable} to the Connection, as JSON or as a URI",
            conn_id=conn_id,
        )
    try:
        return parse_connection(conn_id, text)
    except ValueError as problem:  # its message does not quote the text
        raise EnvironmentUnusable(
            f"Connection {conn_id} cannot be read from {variable}: {problem}. {_NOTHING_DONE}",
            hint=f"correct {variable}; to show Airflow's Connection: `airflow connections get {conn_id} -o json`",
            conn_id=conn_id,
        ) from None


def parse_connection(conn_id: str, text: str) -> Connection:
    """Parse a Connection in one of Airflow's formats, JSON or URI. Raises ValueError, without quoting the text."""
    # aws://KEY:SECRET@/?region_name=eu-west-1 is the same Connection as
    # {"conn_type": "aws", "login": "KEY", "password": "SECRET", "extra": {"region_name": "eu-west-1"}}.
    if text.lstrip().startswith("{"):
        return connection_of(conn_id, _object(text, "it"))
    return _parse_uri(conn_id, text)


def connection_of(conn_id: str, value: Mapping[str, Any]) -> Connection:
    """Return the Connection with these fields; `extra` is an object or JSON. Raises ValueError, without quoting it."""
    extra = value.get("extra") or {}
    if isinstance(extra, str):
        extra = _object(extra, "its `extra`")
    port = value.get("port") or None
    texts = {name: value.get(name) or "" for name in ("conn_type", "host", "schema", "login", "password")}
    if not isinstance(extra, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("expected strings, and an object as `extra`")
    if port is not None and not str(port).isdecimal():
        raise ValueError("expected a number as `port`")
    return Connection(
        conn_id,
        _plain_type(texts.pop("conn_type")),
        port=None if port is None else int(port),
        extra=extra,
        **texts,
    )


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        raise ValueError(f"{what} is not valid JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    return value


def _parse_uri(conn_id: str, text: str) -> Connection:
    parts, protocol = _split_uri(text), ""
    conn_type = parts.scheme
    if not conn_type:
        raise ValueError("expected JSON or a URI, type://login:password@host:port/schema?extra")
    if parts.netloc.count(":") == 1 and parts.netloc.endswith(":") and parts.path.startswith("//"):
        # A host may have its own protocol: type://protocol://host.
        protocol = f"{parts.netloc[:-1]}://"
        parts = _split_uri(f"{conn_type}:{parts.path}?{parts.query}")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    extra = _object(query["__extra__"], "its `__extra__`") if query.get("__extra__") else query
    return Connection(
        conn_id,
        _plain_type(conn_type),
        host=protocol + unquote(parts.hostname or ""),
        port=parts.port,
        schema=unquote(parts.path.removeprefix("/")),
        login=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        extra=extra,
    )


def _split_uri(text: str) -> SplitResult:
    """Return the parts of a URI. Raises ValueError, without quoting it: it is malformed or its port is not a number."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise ValueError("it is not a URI") from None
    return parts


def _plain_type(text: str) -> str:
    """Return a Connection type in canonical form. In a URI it has hyphens instead of underscores."""
    return text.lower().replace("-", "_")


def s3_access(connection: Connection) -> S3Access:
    """Return the S3 settings of a Connection: login and password are the keys, the rest is in `extra`.

    Raises:
        EnvironmentUnusable: it has another type, or settings that would be ignored.
    """
    extra = _checked(
        connection,
        ("aws", "milepost_s3"),
        ("region_name", "endpoint_url", "aws_session_token"),
        unused=("host", "port", "schema"),
    )
    if bool(connection.login) != bool(connection.password):
        raise _unusable(connection, "it has only one of login and password; expected both, or none for the AWS chain")
    token = extra.get("aws_session_token", "")
    if token and not connection.login:
        raise _unusable(connection, "it has an `aws_session_token` without login and password")
    endpoint = extra.get("endpoint_url", "")
    if problem := endpoint_problem(endpoint):
        raise _unusable(connection, f"endpoint_url: {problem}")
    keys = Credentials(connection.login, connection.password, token or None) if connection.login else None
    return S3Access(endpoint or None, extra.get("region_name", "") or "us-east-1", keys)


def s3_store(url: str, connection: Connection) -> StoreConfig:
    """Return how to reach a store on S3 with a Connection. Raises as `s3_access`."""
    access = s3_access(connection)
    return StoreConfig(
        url=url,
        endpoint_url=access.endpoint_url,
        region=access.region,
        endpoint_origins=(f"Connection {connection.conn_id}",),
        conn_id=connection.conn_id,
        credentials=access.credentials,
    )


def spark_server(connection: Connection) -> SparkRemote:
    """Return the Spark Connect server of a Connection: the password is the token, `use_ssl` is in `extra`.

    Raises:
        EnvironmentUnusable: it has another type, or settings that would be ignored.
    """
    extra = _checked(connection, ("spark_connect", "milepost_spark"), ("use_ssl",), unused=("login", "schema"))
    host = connection.host if "://" in connection.host else f"sc://{connection.host}"
    port = "" if connection.port is None else f":{connection.port}"
    tls = extra.get("use_ssl", "").lower()
    try:
        remote = parse_remote(f"{host.rstrip('/')}{port}{f'/;use_ssl={tls}' if tls else ''}")
    except ValueError as problem:
        raise _unusable(connection, str(problem)) from None
    return SparkRemote(remote.host, remote.port, remote.tls, connection.conn_id, connection.password or None)


def postgres_access(connection: Connection) -> PostgresAccess:
    """Return the database of a Connection: `schema` is the database name, TLS settings are in `extra`.

    Raises:
        EnvironmentUnusable: it has another type, or settings that would be ignored.
    """
    known = ("sslmode", "sslrootcert", "sslcert", "sslkey")
    extra = _checked(connection, ("postgres", "postgresql"), known, unused=())
    required = {"host": connection.host, "dbname": connection.schema, "user": connection.login}
    if missing := [name for name, text in (("host", connection.host), ("schema", connection.schema),
                                           ("login", connection.login)) if not text]:  # fmt: skip
        raise _unusable(connection, f"it has no {' and no '.join(missing)}")
    port = {} if connection.port is None else {"port": str(connection.port)}
    password = {"password": connection.password} if connection.password else {}
    return PostgresAccess(f"Connection {connection.conn_id}", parameters={**required, **port, **password, **extra})


def registry_access(connection: Connection) -> RegistryAccess:
    """Return the schema registry of a Connection: `schema` is http or https, `ca_location` is in `extra`.

    Raises:
        EnvironmentUnusable: it has another type, or settings that would be ignored.
    """
    extra = _checked(connection, ("http", "https"), ("ca_location",), unused=())
    if not connection.host:
        raise _unusable(connection, "it has no host")
    if bool(connection.login) != bool(connection.password):
        raise _unusable(connection, "it has only one of login and password; expected both, or none")
    protocol, _, host = connection.host.rpartition("://")
    if protocol and connection.schema:
        raise _unusable(connection, "it has a protocol in both host and schema; expected one of them")
    protocol = protocol or connection.schema or connection.conn_type
    if protocol not in ("http", "https") or not _HOST.fullmatch(host):
        raise _unusable(connection, "expected a host, with http or https as `schema`, and the login in its own fields")
    url = f"{protocol}://{host.rstrip('/')}{'' if connection.port is None else f':{connection.port}'}"
    return RegistryAccess(url, connection.login or None, connection.password or None, extra.get("ca_location") or None)


def _checked(
    connection: Connection, types: tuple[str, ...], known: tuple[str, ...], unused: tuple[str, ...]
) -> dict[str, str]:
    """Return `extra` as strings, after checking that the type is right and that no setting would be ignored."""
    if connection.conn_type not in types:
        raise _unusable(connection, f"it has the type {connection.conn_type or 'none'}, expected {' or '.join(types)}")
    ignored = [name for name in unused if getattr(connection, name)]
    ignored += sorted(f"extra.{name}" for name in set(connection.extra) - set(known))
    if ignored:
        supported = f"in `extra` it supports {', '.join(known)}"
        raise _unusable(connection, f"it has {', '.join(ignored)}, which Milepost would ignore; {supported}")
    texts = {name: _text(value) for name, value in connection.extra.items()}
    values = {"login": connection.login, "password": connection.password, **texts}
    if broken := [name for name, text in values.items() if not text.isprintable()]:
        raise _unusable(connection, f"its {', '.join(broken)} contains a line break or another control character")
    return texts


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _unusable(connection: Connection, problem: str) -> EnvironmentUnusable:
    return EnvironmentUnusable(
        f"Connection {connection.conn_id} cannot be used: {problem}. {_NOTHING_DONE}",
        hint=f"correct Connection {connection.conn_id}",
        conn_id=connection.conn_id,
    )
