"""Transactions on a Postgres database, with timeouts, configured by the spec or a Connection only.

Regardless of the defaults of the server and the role, a transaction is `READ COMMITTED`, has the timeouts below, and is
on disk when COMMIT returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
from psycopg import IsolationLevel

from milepost.databases import OLDEST_VERSION, PostgresTarget, find_target
from milepost.errors import CommitOutcomeUnknown, EnvironmentUnusable, StoreUnavailable
from milepost.jobspec.job import PostgresAccess
from milepost.sinks.formats.postgres.database_errors import postgres_errors

Connection = psycopg.Connection[tuple[Any, ...]]

LOCK_WAIT_S = 15
"""Timeout for a row or a table that another transaction has locked."""

_STATEMENT_S = 900
_IDLE_S = 300
"""The server aborts a transaction that is idle for this long."""

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


class Database:
    """The database of one sink's table. Nothing is resolved or contacted before a transaction begins.

    Args:
        sink: its name, for messages. find_access: returns how to reach the database; raises EnvironmentUnusable.
    """

    def __init__(self, sink: str, find_access: Callable[[], PostgresAccess]) -> None:
        self._sink = sink
        self._find_access = find_access

    def target(self) -> PostgresTarget:
        """Return the connection parameters. Raises EnvironmentUnusable."""
        return find_target("sink", self._sink, self._find_access(), "Nothing was published.")

    def reading(self, failure: str) -> AbstractContextManager[Connection]:
        """Open a transaction that is rolled back at the end. Args and Raises as `transaction`."""
        return self.transaction(failure, rolls_back=True)

    @contextmanager
    def transaction(self, failure: str, *, rolls_back: bool = False) -> Iterator[Connection]:
        """Open a connection and a transaction for a block. It is committed at the end, or rolled back on an error.

        Args:
            failure: start of error messages: what did not happen.
        Raises:
            CommitOutcomeUnknown: COMMIT got no answer. After every other error nothing has changed.
            StoreUnavailable: no answer, or a lock timeout. EnvironmentUnusable: it cannot be used as configured.
            CommitConflict: a table or column no longer exists. InvalidRequest: the database refused a statement.
        """
        target = self.target()
        with postgres_errors(self._sink, target.name, target.secrets, failure):
            connection = target.connect()
        try:
            with postgres_errors(self._sink, target.name, target.secrets, failure):
                connection.prepare_threshold = None  # a connection pool may give each transaction a different session
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

    def _begin(self, connection: Connection, target: PostgresTarget, failure: str) -> None:
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
        if encoding != "UTF8" or version < OLDEST_VERSION:
            actual = f"version {version // 10000}" if version < OLDEST_VERSION else f"the encoding {encoding}"
            raise EnvironmentUnusable(
                f"{failure}: {target.name} has {actual}; expected 13 or newer, and UTF8.",
                hint="give the sink a database that meets both",
                sink=self._sink,
            )


def is_true(connection: Connection, query: str, *parameters: object) -> bool:
    """Return the boolean result of a query; False for null or no row."""
    row = connection.execute(query.encode(), parameters).fetchone()
    return row is not None and bool(row[0])
