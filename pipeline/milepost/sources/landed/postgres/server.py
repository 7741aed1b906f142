"""The server of a source: transactions, state, replication slots and timelines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import IsolationLevel

from milepost.databases import OLDEST_VERSION, PostgresTarget, find_target
from milepost.jobspec.job import PostgresAccess
from milepost.sources.landed.postgres.failures import Failures
from milepost.sources.landed.postgres.pgoutput import lsn_text, parse_lsn

Connection = psycopg.Connection[tuple[Any, ...]]

PLUGIN = "pgoutput"
_LOCK_WAIT_S = 15
_IDLE_S = 900
"""The server aborts a transaction that is idle for this long. A landing stores rows between two reads."""

_SETTINGS = """
SELECT pg_catalog.set_config('lock_timeout', %s, true), pg_catalog.set_config('statement_timeout', '0', true),
       pg_catalog.set_config('idle_in_transaction_session_timeout', %s, true),
       pg_catalog.set_config('search_path', 'pg_catalog', true), pg_catalog.set_config('row_security', 'off', true),
       pg_catalog.set_config('DateStyle', 'ISO, YMD', true), pg_catalog.set_config('TimeZone', 'UTC', true),
       pg_catalog.set_config('IntervalStyle', 'postgres', true), pg_catalog.set_config('bytea_output', 'hex', true),
       pg_catalog.set_config('extra_float_digits', '3', true),
       pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('server_encoding'),
       pg_catalog.current_setting('server_version_num')::int, pg_catalog.current_setting('wal_level')
"""
"""Settings for the texts that `text_values` reads, whatever the server and the role have set."""

_FACTS = """
SELECT (SELECT system_identifier::text FROM pg_control_system()),
       (SELECT oid::text FROM pg_database WHERE datname = current_database()),
       substring(pg_walfile_name(pg_current_wal_insert_lsn()) FOR 8), pg_current_wal_flush_lsn()::text,
       current_setting('max_slot_wal_keep_size'), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
"""
_SLOT = """
SELECT plugin, slot_type, datoid::text, temporary, confirmed_flush_lsn::text, wal_status,
       pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, to_jsonb(slots) ->> 'invalidation_reason'
FROM pg_replication_slots AS slots WHERE slot_name = %s
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of the server.

    Attributes:
        system_id: of the database cluster; a restored copy has the same. database: oid of the database.
        timeline: the current one. flushed: the end of the write-ahead log on disk.
        keeps_all_wal: whether a slot that nothing reads can fill the disk. now_us: its clock.
    """

    system_id: str
    database: str
    timeline: int
    flushed: int
    keeps_all_wal: bool
    now_us: int


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot.

    Attributes:
        confirmed: changes before this LSN were acknowledged. retained_bytes: of the WAL that it retains.
        status: wal_status: reserved, extended, unreserved or lost. lost: why it can no longer be read, or "".
    """

    confirmed: int
    status: str
    retained_bytes: int
    lost: str


class Server:
    """The database of one source. Nothing is resolved or contacted before a transaction begins.

    Args:
        source: its name. find_access: returns how to reach the database; raises EnvironmentUnusable.
    """

    def __init__(self, source: str, failures: Failures, find_access: Callable[[], PostgresAccess]) -> None:
        self._source, self._failures, self._find_access = source, failures, find_access

    @property
    def target(self) -> PostgresTarget:
        """The connection parameters. Raises EnvironmentUnusable."""
        return find_target("source", self._source, self._find_access(), "Nothing was landed.")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a connection and a read-only transaction for a block, which is rolled back at its end.

        Raises:
            SourceUnreachable: no answer, or a standby. EnvironmentUnusable: it cannot be used as configured.
        """
        target = self.target
        with self._failures.translated(target):
            connection: Any = target.connect()
            try:
                connection.prepare_threshold = None  # a connection pool may give each transaction another session
                connection.isolation_level = IsolationLevel.READ_COMMITTED
                connection.read_only = True
                self._begin(connection, target)
                yield connection
            finally:
                connection.close()

    def _begin(self, connection: Connection, target: PostgresTarget) -> None:
        row = connection.execute(_SETTINGS, [f"{_LOCK_WAIT_S}s", f"{_IDLE_S}s"]).fetchone()
        assert row is not None
        is_standby, encoding, version, wal_level = row[-4:]
        if is_standby:
            raise self._failures.unreachable(
                f"{target.name} is a standby, and changes are read from the primary",
                "name the primary, or all hosts with target_session_attrs=read-write",
            )
        if encoding != "UTF8" or version < OLDEST_VERSION:
            actual = f"version {version // 10000}" if version < OLDEST_VERSION else f"the encoding {encoding}"
            raise self._failures.unusable(
                f"{target.name} has {actual}; expected 13 or newer, and UTF8", "use a database that meets both"
            )
        if wal_level != "logical":
            raise self._failures.unusable(
                f"{target.name} has wal_level {wal_level}; expected logical",
                "as an administrator: ALTER SYSTEM SET wal_level = logical; then restart the server",
            )

    def timeline_end(self, timeline: int, current: int) -> int | None:
        """Return where a timeline ended that the current one continues; None: it does not continue it.

        Raises: as `reading`.
        """
        target = self.target
        with self._failures.translated(target):
            connection = target.connect(replication="database")
            try:
                result = connection.pgconn.exec_(f"TIMELINE_HISTORY {current}".encode())
                content = result.get_value(0, 1) if result.ntuples else None
                if content is None:
                    raise psycopg.OperationalError(result.get_error_message())
            finally:
                connection.close()
        return ends_of_timelines(content.decode("utf-8", "replace")).get(timeline)


def ends_of_timelines(history: str) -> dict[int, int]:
    """Return where each ancestor ended, from a timeline's history file. Lines: `1<tab>0/3000148<tab>reason`."""
    ends = {}
    for line in history.splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[0].isdecimal():
            ends[int(fields[0])] = parse_lsn(fields[1])
    return ends


def read_facts(connection: Connection) -> Facts:
    """Return the state of the server."""
    row = connection.execute(_FACTS).fetchone()
    assert row is not None
    system_id, database, timeline, flushed, keep, now_us = row
    return Facts(system_id, database, int(timeline, 16), parse_lsn(flushed), keep == "-1", now_us)


def read_slot(connection: Connection, name: str, database: str, failures: Failures) -> Slot | None:
    """Return a slot, None: there is none. Raises EnvironmentUnusable: it is another kind of slot.

    Args:
        database: oid of the connection's database.
    """
    row = connection.execute(_SLOT, [name]).fetchone()
    if row is None:
        return None
    plugin, slot_type, slot_database, is_temporary, confirmed, status, retained, invalidated = row
    if (plugin, slot_type, slot_database, is_temporary) != (PLUGIN, "logical", database, False):
        raise failures.unusable(
            f"slot {name} is not of this source: expected a permanent logical slot of {PLUGIN} in the database with "
            f"oid {database}, got a {slot_type} slot of {plugin or 'no plugin'} in {slot_database or 'none'}",
            f"drop it (SELECT pg_drop_replication_slot('{name}'))",
        )
    lost = "" if status != "lost" and invalidated is None else invalidated or "wal_removed"
    return Slot(0 if confirmed is None else parse_lsn(confirmed), status or "", retained or 0, lost)


def create_slot(connection: Connection, name: str) -> int:
    """Create the slot, once all open transactions have ended. Returns its consistent point."""
    row = connection.execute("SELECT lsn::text FROM pg_create_logical_replication_slot(%s, %s)", [name, PLUGIN])
    return parse_lsn(str(row.fetchone()[0]))  # type: ignore[index]


def advance_slot(connection: Connection, name: str, lsn: int) -> None:
    """Acknowledge everything before an LSN."""
    connection.execute("SELECT pg_replication_slot_advance(%s, %s::text::pg_lsn)", [name, lsn_text(lsn)])


def can_use_slots(connection: Connection) -> bool:
    """Return whether the role may use slots. Reads a slot that does not exist, which changes nothing."""
    try:
        with connection.transaction():
            connection.execute(
                "SELECT count(*) FROM pg_logical_slot_peek_binary_changes('milepost_there_is_none', NULL, 1)"
            )
    except psycopg.errors.InsufficientPrivilege:
        return False
    except psycopg.errors.UndefinedObject:
        return True
    return True


def quoted_name(publication: str) -> str:
    """Return a publication as an identifier in a list of names."""
    return '"' + publication.replace('"', '""') + '"'
