"""Postgres as a table format: the table is a projection of a checkpoint's contents, which are change files.

An epoch's changes are staged as Parquet in the job's storage, and compacted there like managed Parquet tables.
The files are authoritative. A move writes the rows that differ, in one transaction with the table's head
(`table_head`). So a rollback needs no undo log.

The column `_milepost` of a row has the number of the move that wrote it. A row where it is null is foreign, and is
never changed.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from psycopg import sql

from milepost.errors import EnvironmentUnusable, InvalidRequest
from milepost.jobspec.job import PostgresAccess
from milepost.protocol.records import ObjectStore
from milepost.sinks.formats.postgres.database import Connection, Database, is_true
from milepost.sinks.formats.postgres.open_postgres_table import OpenPostgresTable, TableContext, column_sql
from milepost.sinks.formats.postgres.postgres_types import MARK, check_columns, check_rows
from milepost.sinks.formats.postgres.refusals import KINDS
from milepost.sinks.formats.postgres.table_head import TableName, add_head, make_heads, read_head
from milepost.sinks.parquet_files.table_files import TableFiles
from milepost.tables.records import RESERVATION, TableOwner, read_reservation


class PostgresFormat:
    """One table in Postgres; see `table_format.TableFormat`.

    Args:
        sink: its name, for messages. key: of its rows. find_access: returns how to reach the database.
        table: schema and name. store: of the staged files.
    """

    keeps_statistics = False
    is_database = True
    caches_reads = False
    stores_owner = False
    """The head names the owner. A table without a head, or with another owner, is refused when it is opened."""

    log_prefix = RESERVATION
    """There is no log below the table's root."""

    def __init__(
        self,
        sink: str,
        *,
        key: tuple[str, ...],
        find_access: Callable[[], PostgresAccess],
        table: tuple[str, str],
        store: ObjectStore,
    ) -> None:
        self._sink, self._key, self._store = sink, key, store
        self._database = Database(sink, find_access)
        self._name = TableName(*table)

    def __repr__(self) -> str:
        return f"PostgresFormat({self._sink!r}, {self._name!s})"

    def check_columns(self, schema: pa.Schema) -> None:
        check_columns(self._sink, schema, self._key)

    def open(self) -> OpenPostgresTable | None:
        with self._database.reading(f"sink {self._sink}: its table {self._name} was not opened") as connection:
            relation = _relation(connection, self._name)
            if relation is None:
                return None
            oid, kind = relation
            if kind != "r":
                raise self._unusable_table(f"is {KINDS.get(kind, 'no table')}; expected a plain table")
            head = read_head(connection, self._name, oid)
            if head is None:
                raise self._unusable_table("exists, but Milepost did not create it")
            table_id = f"{_system_id(connection)}/{oid}"
        self._check_owner(head.owner)
        files = TableFiles(self._sink, self._store)
        context = TableContext(self._sink, self._name, self._key, self._database, files)
        return OpenPostgresTable(context, head, table_id)

    def recent(self) -> None:
        """Return None: every commit opens the table first."""

    def create(self, owner: TableOwner, schema: pa.Schema) -> None:
        check_columns(self._sink, schema, self._key)
        failure = f"sink {self._sink}: its table {self._name} was not created"
        with self._database.transaction(failure) as connection:
            if not is_true(connection, "SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL", self._name.schema):
                raise EnvironmentUnusable(
                    f"{failure}: there is no schema {self._name.schema}.",
                    hint=f'CREATE SCHEMA "{self._name.schema}" AUTHORIZATION the sink\'s user',
                    sink=self._sink,
                )
            make_heads(connection, self._name)  # takes a lock, so only one of several writers creates the table
            if _relation(connection, self._name) is not None:
                return
            connection.execute(_create_statement(self._name, schema, self._key))
            created = _relation(connection, self._name)
            assert created is not None
            add_head(connection, self._name, created[0], owner, schema)

    def check_rows(self, rows: pa.Table) -> None:
        check_rows(self._sink, rows, self._key)

    def probe(self) -> str:
        """Return no findings: opening the table tests everything."""
        return ""

    def maintain(self, retention_ms: int) -> None:
        """Do nothing: autovacuum maintains the table."""

    def _check_owner(self, owner: TableOwner) -> None:
        """Refuse a table of another job or sink. The reservation, in the job's own storage, cannot prevent that.

        Raises: InvalidRequest.
        """
        reserved = read_reservation(self._store)
        if reserved is None or reserved.owner == owner:
            return
        another = " (with another storage, or before this job was recreated)" if owner.job == reserved.owner.job else ""
        raise InvalidRequest(
            f"sink {self._sink}: its table {self._name} is reserved for sink {owner.sink} of job {owner.job}{another}. "
            "Nothing was published.",
            hint=f"give the sink another table; or, if {owner.job} no longer exists, DROP TABLE {self._name}",
            sink=self._sink,
        )

    def _unusable_table(self, reason: str) -> InvalidRequest:
        return InvalidRequest(
            f"sink {self._sink}: {self._name} {reason}. Nothing was published.",
            hint="give the sink a table that does not exist yet: the sink creates it",
            sink=self._sink,
        )


def _create_statement(name: TableName, schema: pa.Schema, key: tuple[str, ...]) -> sql.Composed:
    return sql.SQL("CREATE TABLE {} ({}, {} bigint, PRIMARY KEY ({}))").format(
        name.quoted,
        sql.SQL(", ").join(map(column_sql, schema)),
        sql.Identifier(MARK),
        sql.SQL(", ").join(map(sql.Identifier, key)),
    )


def _relation(connection: Connection, name: TableName) -> tuple[int, str] | None:
    """Return oid and kind of the relation with the table's name; None if there is none."""
    row = connection.execute(
        "SELECT c.oid, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s",
        [name.schema, name.table],
    ).fetchone()
    return None if row is None else (row[0], str(row[1]))


def _system_id(connection: Connection) -> str:
    """Return a unique identity of the database: the server's system identifier and the database's oid."""
    row = connection.execute(
        "SELECT (SELECT system_identifier FROM pg_control_system()), oid FROM pg_database "
        "WHERE datname = current_database()"
    ).fetchone()
    assert row is not None
    return f"{row[0]}/{row[1]}"
