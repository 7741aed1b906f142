"""A database of Postgres: reached by the spec or a Connection alone, in bounded time, one transaction at a time.

Nothing comes from the home folder: no file of passwords, no service. A transaction is `READ COMMITTED` whatever the
server's default is, waits for locks and statements no longer than is said here, and is on disk when it is committed,
also where the role's default is not to wait for that.
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
from milepost.jobspec.job.connections import PostgresAccess
from milepost.sinks.formats.postgres.database_errors import postgres_errors

Connection = psycopg.Connection[tuple[Any, ...]]

LOCK_WAIT_S = 15
"""For a row or a table that another transaction holds."""

_STATEMENT_S = 900
_IDLE_S = 300
"""A writer that stands still in its transaction for so long is ended by the server, and has done nothing."""

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
class Place:
    """A database as libpq is told of it.

    Attributes:
        parameters: by libpq's names, a secret among them.
    """

    parameters: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        """The database for messages, without user and password."""
        port = self.parameters.get("port", "5432")
        return f"database {self.parameters['dbname']} at {self.parameters['host']}:{port}"

    @property
    def secrets(self) -> frozenset[str]:
        """What must stand in no message."""
        return frozenset(self.parameters[name] for name in _SECRETS if self.parameters.get(name))


class Database:
    """The database of one sink's table. Nothing is looked up or contacted before a transaction begins.

    Args:
        sink: its name, for messages. find_access: says how the database is reached; raises EnvironmentUnusable.
    """

    def __init__(self, sink: str, find_access: Callable[[], PostgresAccess]) -> None:
        self._sink = sink
        self._find_access = find_access

    def place(self) -> Place:
        """Return where the database is. Raises EnvironmentUnusable."""
        return _place(self._sink, self._find_access())

    def look(self, doing: str) -> AbstractContextManager[Connection]:
        """Open a transaction that is undone at the end: nothing of it was ever there. Args and Raises as below."""
        return self.transaction(doing, undone=True)

    @contextmanager
    def transaction(self, doing: str, *, undone: bool = False) -> Iterator[Connection]:
        """Open a connection and a transaction for a block; it is committed at the end, and undone if the block raises.

        Args:
            doing: what is not done when something fails, as the beginning of a message.
        Raises:
            CommitOutcomeUnknown: no answer came to COMMIT. Before that nothing has happened, and it is
            StoreUnavailable: it did not answer, or another held a lock too long. EnvironmentUnusable: it never will, as
            configured. CommitConflict: what is to be changed is not there any more. InvalidRequest: it refused.
        """
        place = self.place()
        with postgres_errors(self._sink, place.name, place.secrets, doing):
            connection = psycopg.connect(**dict(place.parameters), autocommit=False)  # type: ignore[arg-type]
        try:
            with postgres_errors(self._sink, place.name, place.secrets, doing):
                connection.prepare_threshold = None  # a pool between us may give each transaction another session
                connection.isolation_level = IsolationLevel.READ_COMMITTED
                connection.read_only = False
                self._begin(connection, place, doing)
                yield connection
            if undone:
                return
            with postgres_errors(self._sink, place.name, place.secrets, doing):
                try:
                    connection.commit()
                except psycopg.OperationalError as error:
                    if not connection.broken:
                        raise
                    raise CommitOutcomeUnknown(
                        f"{doing}: {place.name} did not answer to COMMIT ({type(error).__name__}); nobody knows "
                        "whether it landed.",
                        hint="try again: the table is read back first",
                        sink=self._sink,
                    ) from None
        finally:
            connection.close()

    def _begin(self, connection: Connection, place: Place, doing: str) -> None:
        bounds = [f"{seconds}s" for seconds in (LOCK_WAIT_S, _STATEMENT_S, _IDLE_S)]
        row = connection.execute(_SETTINGS, bounds).fetchone()
        assert row is not None
        is_standby, encoding, version = row[-3:]
        if is_standby:
            raise StoreUnavailable(
                f"{doing}: {place.name} is a standby, which takes no writes.",
                hint="name the primary, or all hosts with target_session_attrs=read-write",
                sink=self._sink,
            )
        if encoding != "UTF8" or version < _OLDEST:
            said = f"version {version // 10000}" if version < _OLDEST else f"the encoding {encoding}"
            raise EnvironmentUnusable(
                f"{doing}: {place.name} has {said}; expected 13 or newer, and UTF8.",
                hint="give the sink a database that has",
                sink=self._sink,
            )


def is_true(connection: Connection, query: str, *parameters: object) -> bool:
    """Return the answer to a question; false where the answer is null, or none."""
    row = connection.execute(query.encode(), parameters).fetchone()
    return row is not None and bool(row[0])


def _place(sink: str, access: PostgresAccess) -> Place:
    parameters = dict(access.parameters)
    if access.dsn:
        try:
            parameters = {name: str(value) for name, value in conninfo_to_dict(access.dsn).items() if value is not None}
        except psycopg.Error:  # it quotes what it was given
            raise _unusable(sink, access, "it cannot be read") from None
    unknown = sorted(set(parameters) - _KNOWN)
    if unknown:
        raise _unusable(sink, access, f"it has {', '.join(unknown)}, which is not followed here")
    missing = [name for name in _NEEDED if not parameters.get(name)]
    if missing:
        raise _unusable(sink, access, f"it has no {' and no '.join(missing)}")
    named = {"application_name": f"milepost {sink}", "connect_timeout": "10", "password": "", **parameters}
    return Place({**_FIXED, **named})


def _unusable(sink: str, access: PostgresAccess, problem: str) -> EnvironmentUnusable:
    return EnvironmentUnusable(
        f"sink {sink}: {access.origin} cannot be used: {problem}. Nothing was published.",
        hint="expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with sslmode=verify-full on a network that "
        "others use",
        sink=sink,
    )
