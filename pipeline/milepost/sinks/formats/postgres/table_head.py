"""The head of a Postgres table: one row with its owner and mark.

The heads of all tables of a schema are in its table ``milepost_tables``, by the table's oid; a recreated table has
another oid. A move first updates the head by compare-and-set, in the transaction that changes the rows. So head and
rows always match, also in a backup, and two writers never move a table concurrently.

    table_oid  job     sink    number  write_id  version
    16412      orders  totals  97      3f…       5          UPDATE … SET number = 98, version = 6 WHERE version = 5
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from psycopg import sql

from milepost.sinks.formats.postgres.database import Connection, is_true
from milepost.tables.records import TableOwner, decode_schema, encode_schema

HEADS = "milepost_tables"

_LOCKS = {True: " FOR UPDATE", False: ""}


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's schema and name."""

    schema: str
    table: str

    @property
    def quoted(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.table)

    @property
    def heads(self) -> sql.Identifier:
        """The table with the heads of the schema's tables."""
        return sql.Identifier(self.schema, HEADS)

    def __str__(self) -> str:
        return self.quoted.as_string()


@dataclass(frozen=True, slots=True)
class TableHead:
    """The row.

    Attributes:
        oid: of the table. number, write_id: of the mark; 0 and None before the first.
        version: increases with each commit of the job. schema: the columns that the job created.
    """

    oid: int
    owner: TableOwner
    number: int
    write_id: str | None
    version: int
    schema: pa.Schema


def make_heads(connection: Connection, name: TableName) -> None:
    """Create the table of heads if it does not exist. A lock until the end of the transaction prevents a race."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 7133))", [f"milepost {name.schema}"])
    connection.execute(
        sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (table_oid oid PRIMARY KEY, table_name text NOT NULL, job text NOT NULL, "
            "identity text NOT NULL, sink text NOT NULL, number bigint NOT NULL, write_id text, "
            "version bigint NOT NULL, columns text NOT NULL, moved_at timestamptz NOT NULL)"
        ).format(name.heads)
    )


def read_head(connection: Connection, name: TableName, oid: int, *, for_update: bool = False) -> TableHead | None:
    """Return the head of a table; None if Milepost did not create the table.

    Args:
        for_update: lock the row, and wait for a transaction that is changing it.
    """
    if not is_true(connection, "SELECT to_regclass(%s) IS NOT NULL", name.heads.as_string()):
        return None
    row = connection.execute(
        sql.SQL(
            "SELECT job, identity, sink, number, write_id, version, columns FROM {} WHERE table_oid = %s"
            + _LOCKS[for_update]
        ).format(name.heads),
        [oid],
    ).fetchone()
    if row is None:
        return None
    job, identity, sink, number, write_id, version, columns = row
    return TableHead(oid, TableOwner(job, identity, sink), number, write_id, version, decode_schema(columns))


def add_head(connection: Connection, name: TableName, oid: int, owner: TableOwner, schema: pa.Schema) -> None:
    """Insert the head of a new table, and delete the heads of dropped tables."""
    connection.execute(
        sql.SQL("DELETE FROM {} WHERE NOT EXISTS (SELECT FROM pg_class WHERE pg_class.oid = table_oid)").format(
            name.heads
        )
    )
    connection.execute(
        sql.SQL("INSERT INTO {} VALUES (%s, %s, %s, %s, %s, 0, NULL, 0, %s, now())").format(name.heads),
        [oid, str(name), owner.job, owner.identity, owner.sink, encode_schema(schema)],
    )


def move_head(connection: Connection, name: TableName, head: TableHead, number: int, write_id: str) -> bool:
    """Set the mark if the head is as it was read. False: another writer was first. Locks the row until the end."""
    moved = connection.execute(
        sql.SQL(
            "UPDATE {} SET number = %s, write_id = %s, version = version + 1, moved_at = now() "
            "WHERE table_oid = %s AND version = %s"
        ).format(name.heads),
        [number, write_id, head.oid, head.version],
    )
    return moved.rowcount == 1


def widen_head(connection: Connection, name: TableName, head: TableHead, schema: pa.Schema) -> bool:
    """Set the columns if the head is as it was read. False: another writer was first."""
    moved = connection.execute(
        sql.SQL("UPDATE {} SET columns = %s, version = version + 1 WHERE table_oid = %s AND version = %s").format(
            name.heads
        ),
        [encode_schema(schema), head.oid, head.version],
    )
    return moved.rowcount == 1
