"""The head of a table in Postgres: one row beside it that says whose it is and what it shows.

All heads of a schema's tables are in its table ``milepost_tables``, by the table's oid: one that is dropped and made
anew has another. A move of the table changes its head first, by compare-and-set, in the transaction that changes its
rows; so the two go together, into a backup too, and two writers never move one table at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from psycopg import sql

from milepost.sinks.formats.postgres.database import Connection, is_true
from milepost.sinks.records.committables import decode_schema, encode_schema
from milepost.sinks.records.reservation import TableOwner

HEADS = "milepost_tables"

_LOCKS = {True: " FOR UPDATE", False: ""}


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's schema and name, as they are quoted."""

    schema: str
    table: str

    @property
    def quoted(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.table)

    @property
    def heads(self) -> sql.Identifier:
        """Where the heads of the schema's tables are."""
        return sql.Identifier(self.schema, HEADS)

    def __str__(self) -> str:
        return self.quoted.as_string()


@dataclass(frozen=True, slots=True)
class TableHead:
    """What the row says.

    Attributes:
        oid: of the table. owner: whose it is. number, write_id: of the mark that it carries; 0 and None: of none.
        version: rises with each of our commits. schema: the columns that we made.
    """

    oid: int
    owner: TableOwner
    number: int
    write_id: str | None
    version: int
    schema: pa.Schema


def make_heads(connection: Connection, name: TableName) -> None:
    """Make the table of heads, unless there is one; a transaction-long lock keeps two from making it at once."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 7133))", [f"milepost {name.schema}"])
    connection.execute(
        sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (table_oid oid PRIMARY KEY, table_name text NOT NULL, job text NOT NULL, "
            "identity text NOT NULL, sink text NOT NULL, number bigint NOT NULL, write_id text, "
            "version bigint NOT NULL, columns text NOT NULL, moved_at timestamptz NOT NULL)"
        ).format(name.heads)
    )


def read_head(connection: Connection, name: TableName, oid: int, *, for_update: bool = False) -> TableHead | None:
    """Return the head of a table; None: it has none, so it is none of ours.

    Args:
        for_update: wait for whoever is about to change it.
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
    """Say whose a new table is, and forget tables that are gone."""
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
    """Let a head carry a mark, if it is as it was read; False: another was faster. Locks it until the end."""
    moved = connection.execute(
        sql.SQL(
            "UPDATE {} SET number = %s, write_id = %s, version = version + 1, moved_at = now() "
            "WHERE table_oid = %s AND version = %s"
        ).format(name.heads),
        [number, write_id, head.oid, head.version],
    )
    return moved.rowcount == 1


def widen_head(connection: Connection, name: TableName, head: TableHead, schema: pa.Schema) -> bool:
    """Let a head have more columns, if it is as it was read; False: another was faster."""
    moved = connection.execute(
        sql.SQL("UPDATE {} SET columns = %s, version = version + 1 WHERE table_oid = %s AND version = %s").format(
            name.heads
        ),
        [encode_schema(schema), head.oid, head.version],
    )
    return moved.rowcount == 1
