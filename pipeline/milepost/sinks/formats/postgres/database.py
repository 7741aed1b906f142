"""Transactions on a Postgres database, with timeouts, configured by the spec or a Connection only.

Nothing is read from the home directory, such as a password or service file. Whatever the defaults of server and role
are, a transaction is `READ COMMITTED`, has the timeouts below, and is on disk when COMMIT returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import IsolationLevel
from psycopg.conninfo import conninfo_to_dict

from milepost.errors import CommitOutcomeUnknown, EnvironmentUnusable, StoreUnavailable
from milepost.jobspec.job import PostgresAccess
from milepost.sinks.formats.postgres.database_errors import postgres_errors

Connection = psycopg.Connection[tuple[Any, ...]]

LOCK_WAIT_S = 15
"""Timeout for a row or a table that another transaction has locked."""

_STATEMENT_S = 900
_IDLE_S = 300
"""The server aborts a transaction that is idle for this long."""

_KNOWN = frozenset(
    {
        "host", "hostaddr", "port", "dbname", "user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey",
        "sslpassword", "channel_binding", "target_session_attrs", "connect_timeout", "application_name",
    }
)  # fmt: skip
_NEEDED = ("host", "dbname", "user")
_SECRETS = ("password", "sslpassword")
_NO_SUCH_FILE = "/dev/null/none"
_FIXED: Mapping[str, str] = {
    "passfile": _NO_SUCH_FILE,
    "client_encoding": "UTF8",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
_SETTINGS = """
SELECT pg_catalog.set_config('lock_timeout', %s, true), pg_catalog.set_config('statement_timeout', %s, true),
       pg_catalog.set_config('idle_in_transaction_session_timeout', %s, true),
       pg_catalog.set_config('search_path', 'pg_catalog', true), pg_catalog.set_config('row_security', 'off', true),
       pg_catalog.set_config('DateStyle', 'ISO, YMD', true), pg_catalog.set_config('TimeZone', 'UTC', true),
       pg_catalog.set_config('synchronous_commit', CASE pg_catalog.current_setting('synchronous_commit')
           WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
       pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('server_encoding'),
       pg_catalog.current_setting('server_version_num')::int
"""
_OLDEST = 130000


@dataclass(frozen=True, slots=True)
class DatabaseTarget:
    """The connection parameters of a database.

    Attributes:
        parameters: by libpq's names, including secrets.
    """

    parameters: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        """The database for messages, without user and password."""
        port = self.parameters.get("port", "5432")
        return f"database {self.parameters['dbname']} at {self.parameters['host']}:{port}"

    @property
    def secrets(self) -> frozenset[str]:
        """Texts that no message may contain."""
        return frozenset(self.parameters[name] for name in _SECRETS if self.parameters.get(name))


class Database:
    """The database of one sink's table. Nothing is resolved or contacted before a transaction begins.

    Args:
        sink: its name, for messages. find_access: returns how to reach the database; raises EnvironmentUnusable.
    """

    def __init__(self, sink: str, find_access: Callable[[], PostgresAccess]) -> None:
        self._sink = sink
        self._find_access = find_access

    def target(self) -> DatabaseTarget:
        """Return the connection parameters. Raises EnvironmentUnusable."""
        return _target(self._sink, self._find_access())

    def reading(self, failure: str) -> AbstractContextManager[Connection]:
        """Open a transaction that is rolled back at the end. Args and Raises as `transaction`."""
        return self.transaction(failure, rolls_back=True)

    @contextmanager
    def transaction(self, failure: str, *, rolls_back: bool = False) -> Iterator[Connection]:
        """Open a connection and a transaction for a block. It is committed at the end, or rolled back on an error.

        Args:
            failure: what did not happen if something fails, as the start of a message.
        Raises:
            CommitOutcomeUnknown: COMMIT got no answer. After every other error nothing has changed.
            StoreUnavailable: no answer, or a lock timeout. EnvironmentUnusable: it cannot be used as configured.
            CommitConflict: a table or column no longer exists. InvalidRequest: the database refused a statement.
        """
        target = self.target()
        with postgres_errors(self._sink, target.name, target.secrets, failure):
            connection = psycopg.connect(**dict(target.parameters), autocommit=False)  # type: ignore[arg-type]
        try:
            with postgres_errors(self._sink, target.name, target.secrets, failure):
                connection.prepare_threshold = None  # a connection pool may give each transaction another session
                connection.isolation_level = IsolationLevel.READ_COMMITTED
                connection.read_only = False
                self._begin(connection, target, failure)
                yield connection
            if rolls_back:
                return
            with postgres_errors(self._sink, target.name, target.secrets, failure):
                try:
                    connection.commit()
                except psycopg.OperationalError as error:
                    if not connection.broken:
                        raise
                    raise CommitOutcomeUnknown(
                        f"{failure}: {target.name} did not answer COMMIT ({type(error).__name__}); it is "
                        "unknown whether it landed.",
                        hint="try again: the table is read first",
                        sink=self._sink,
                    ) from None
        finally:
            connection.close()

    def _begin(self, connection: Connection, target: DatabaseTarget, failure: str) -> None:
        bounds = [f"{seconds}s" for seconds in (LOCK_WAIT_S, _STATEMENT_S, _IDLE_S)]
        row = connection.execute(_SETTINGS, bounds).fetchone()
        assert row is not None
        is_standby, encoding, version = row[-3:]
        if is_standby:
            raise StoreUnavailable(
                f"{failure}: {target.name} is a standby, which accepts no writes.",
                hint="name the primary, or all hosts with target_session_attrs=read-write",
                sink=self._sink,
            )
        if encoding != "UTF8" or version < _OLDEST:
            actual = f"version {version // 10000}" if version < _OLDEST else f"the encoding {encoding}"
            raise EnvironmentUnusable(
                f"{failure}: {target.name} has {actual}; expected 13 or newer, and UTF8.",
                hint="give the sink a database that meets both",
                sink=self._sink,
            )


def is_true(connection: Connection, query: str, *parameters: object) -> bool:
    """Return the boolean result of a query; False for null, or without a row."""
    row = connection.execute(query.encode(), parameters).fetchone()
    return row is not None and bool(row[0])


def _target(sink: str, access: PostgresAccess) -> DatabaseTarget:
    parameters = dict(access.parameters)
    if access.dsn:
        try:
            parameters = {name: str(value) for name, value in conninfo_to_dict(access.dsn).items() if value is not None}
        except psycopg.Error:  # its message quotes the DSN
            raise _unusable(sink, access, "it cannot be parsed") from None
    unknown = sorted(set(parameters) - _KNOWN)
    if unknown:
        raise _unusable(sink, access, f"it has {', '.join(unknown)}, which is not supported here")
    missing = [name for name in _NEEDED if not parameters.get(name)]
    if missing:
        raise _unusable(sink, access, f"it lacks {' and '.join(missing)}")
    named = {"application_name": f"milepost {sink}", "connect_timeout": "10", "password": "", **parameters}
    return DatabaseTarget({**_FIXED, **named})


def _unusable(sink: str, access: PostgresAccess, problem: str) -> EnvironmentUnusable:
    return EnvironmentUnusable(
        f"sink {sink}: {access.origin} cannot be used: {problem}. Nothing was published.",
        hint="expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with sslmode=verify-full on a shared network",
        sink=sink,
    )
