"""Postgres as a table format: a table is a projection of the contents of a checkpoint, which are files of changes.

What an epoch changed is staged as Parquet in the job's storage, and compacted there as tables of our own format are.
These files are the truth; a move writes the rows that differ, in one transaction, with the table's head (`table_head`).
So going back needs no list of what was there before.

Each row says by which move of ours it was written; one that does not is somebody else's, and stays.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from psycopg import sql

from milepost.errors import EnvironmentUnusable, InvalidRequest
from milepost.jobspec.job.connections import PostgresAccess
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.files.table_files import TableFiles
from milepost.sinks.formats.postgres.database import Connection, Database, is_true
from milepost.sinks.formats.postgres.open_postgres_table import OpenPostgresTable, TableContext, column_sql
from milepost.sinks.formats.postgres.postgres_types import MARK, check_columns, check_rows
from milepost.sinks.formats.postgres.refusals import KINDS
from milepost.sinks.formats.postgres.table_head import TableName, add_head, make_heads, read_head
from milepost.sinks.records.reservation import RESERVATION, TableOwner, read_reservation


class PostgresFormat:
    """The place of one table in Postgres.

    Args:
        sink: its name, for messages. key: of its rows. find_access: says how the database is reached.
        table: schema and name. store: of the staged files.
    """

    keeps_statistics = False
    is_database = True
    caches_reads = False
    stores_owner = False
    """Its head does, which only we make: a table without one is refused, and so is another's, when it is opened."""

    log_prefix = RESERVATION
    """It has no log below its staged files."""

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
        with self._database.look(f"sink {self._sink}: its table {self._name} was not opened") as connection:
            found = _relation(connection, self._name)
            if found is None:
                return None
            oid, kind = found
            if kind != "r":
                raise self._not_ours(f"is {KINDS.get(kind, 'no table')}, where a plain table is expected")
            head = read_head(connection, self._name, oid)
            if head is None:
                raise self._not_ours("exists, and is none that Milepost made")
            table_id = f"{_system_id(connection)}/{oid}"
        self._check_owner(head.owner)
        files = TableFiles(self._sink, self._store)
        place = TableContext(self._sink, self._name, self._key, self._database, files)
        return OpenPostgresTable(place, head, table_id)

    def recent(self) -> None:
        """Nothing: its commits are given a table that was opened for them."""

    def create(self, owner: TableOwner, schema: pa.Schema) -> None:
        check_columns(self._sink, schema, self._key)
        doing = f"sink {self._sink}: its table {self._name} was not made"
        with self._database.transaction(doing) as connection:
            if not is_true(connection, "SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL", self._name.schema):
                raise EnvironmentUnusable(
                    f"{doing}: there is no schema {self._name.schema}.",
                    hint=f'CREATE SCHEMA "{self._name.schema}" AUTHORIZATION the sink\'s user',
                    sink=self._sink,
                )
            make_heads(connection, self._name)  # its lock lets one of several make the table
            if _relation(connection, self._name) is not None:
                return
            connection.execute(_create_statement(self._name, schema, self._key))
            made = _relation(connection, self._name)
            assert made is not None
            add_head(connection, self._name, made[0], owner, schema)

    def check_rows(self, rows: pa.Table) -> None:
        check_rows(self._sink, rows, self._key)

    def probe(self) -> str:
        """Nothing: looking at the table has asked all there is."""
        return ""

    def maintain(self, retention_ms: int) -> None:
        """Nothing: Postgres cleans its tables up by itself."""

    def _check_owner(self, owner: TableOwner) -> None:
        """Refuse a table of another job or sink: the reservation lies in the job's own storage, which others have not.

        Raises: InvalidRequest.
        """
        reserved = read_reservation(self._store)
        if reserved is None or reserved.owner == owner:
            return
        another = " (of another storage, or an earlier life of this job)" if owner.job == reserved.owner.job else ""
        raise InvalidRequest(
            f"sink {self._sink}: its table {self._name} is reserved for sink {owner.sink} of job {owner.job}{another}. "
            "Nothing was published.",
            hint=f"give the sink another table; or, if {owner.job} is gone, DROP TABLE {self._name}",
            sink=self._sink,
        )

    def _not_ours(self, why: str) -> InvalidRequest:
        return InvalidRequest(
            f"sink {self._sink}: {self._name} {why}. Nothing was published.",
            hint="give the sink a table that does not exist yet: it makes it itself",
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
    """Return oid and kind of what has the table's name; None: nothing has."""
    row = connection.execute(
        "SELECT c.oid, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s",
        [name.schema, name.table],
    ).fetchone()
    return None if row is None else (row[0], str(row[1]))


def _system_id(connection: Connection) -> str:
    """Return what tells a database from all others: of the server's files, and of the database in it."""
    row = connection.execute(
        "SELECT (SELECT system_identifier FROM pg_control_system()), oid FROM pg_database "
        "WHERE datname = current_database()"
    ).fetchone()
    assert row is not None
    return f"{row[0]}/{row[1]}"
