"""Refuse Postgres tables with features that Milepost's writes would break, or that would break them.

This is checked before the commit point of every epoch. A feature that is added between the check and the commit makes
the commit fail as a whole, and the sink waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from milepost.errors import EnvironmentUnusable
from milepost.sinks.formats.postgres.database import Connection, is_true
from milepost.sinks.formats.postgres.postgres_types import MARK, required_type
from milepost.sinks.formats.postgres.table_head import TableName
from milepost.sinks.formats.refusals import Refusal, refuse_table

KINDS = {
    "v": "a view", "m": "a materialized view", "p": "partitioned", "f": "a foreign table", "S": "a sequence",
    "i": "an index", "c": "a type", "I": "an index", "t": "a table of long values",
}  # fmt: skip
_CONSTRAINTS = {"f": "the foreign key", "c": "the check", "x": "the exclusion", "u": "the unique constraint",
                "t": "the constraint trigger"}  # fmt: skip


def refuse_relation(
    connection: Connection, sink: str, name: TableName, oid: int, schema: pa.Schema, key: tuple[str, ...]
) -> None:
    """Refuse a table that Milepost cannot write, or that it could write only by breaking additions to it.

    Args:
        schema: the columns with which the table was created.
    Raises: InvalidRequest, EnvironmentUnusable: the first reason.
    """
    for right in _missing_rights(connection, name, oid):
        raise EnvironmentUnusable(
            f"sink {sink}: its table {name}: the sink's user has no right to {right.reason}. Nothing was published.",
            hint=right.hint,
            sink=sink,
        )
    refuse_table(
        sink,
        str(name),
        chain(
            _structure(connection, name, oid),
            _columns(connection, name, oid, schema),
            _key(connection, name, oid, key),
            _constraints(connection, name, oid),
        ),
    )


def _missing_rights(connection: Connection, name: TableName, oid: int) -> Iterator[Refusal]:
    for right in ("SELECT", "INSERT", "UPDATE", "DELETE"):
        if not is_true(connection, "SELECT has_table_privilege(%s::oid, %s)", oid, right):
            yield Refusal(f"{right} on it", f"GRANT {right} ON {name} TO the sink's user")
    for right in ("SELECT", "UPDATE"):
        if not is_true(connection, "SELECT has_table_privilege(%s, %s)", name.heads.as_string(), right):
            yield Refusal(
                f"{right} on {name.heads.as_string()}",
                f"GRANT {right} ON {name.heads.as_string()} TO the sink's user",
            )
    if not is_true(connection, "SELECT has_database_privilege(current_database(), 'TEMP')"):
        yield Refusal("create temporary tables", "GRANT TEMPORARY ON DATABASE … TO the sink's user")


def _structure(connection: Connection, name: TableName, oid: int) -> Iterator[Refusal]:
    row = connection.execute(
        "SELECT relpersistence, relhasrules, row_security_active(oid), relispartition, "
        "EXISTS (SELECT FROM pg_inherits WHERE inhparent = oid OR inhrelid = oid) FROM pg_class WHERE oid = %s",
        [oid],
    ).fetchone()
    if row is None:
        return
    persistence, has_rules, row_security, is_partition, inherits = row
    if persistence != "p":
        yield Refusal("does not survive a crash of the server", f"ALTER TABLE {name} SET LOGGED")
    if has_rules:
        rule = _first(connection, "SELECT rulename FROM pg_rewrite WHERE ev_class = %s", oid)
        yield Refusal(f"has the rule {rule}, which changes what is written", f'DROP RULE "{rule}" ON {name}')
    if row_security:
        yield Refusal(
            "has row level security, which hides rows from the sink's user",
            f"ALTER TABLE {name} DISABLE ROW LEVEL SECURITY",
        )
    if is_partition or inherits:
        yield Refusal("is part of a partitioned table, or is inherited from", "give the sink a plain table")
    trigger = _first(
        connection,
        "SELECT tgname FROM pg_trigger WHERE tgrelid = %s AND NOT tgisinternal AND tgenabled <> 'D'",
        oid,
    )
    if trigger is not None:
        yield Refusal(
            f"has the trigger {trigger}, whose failure would make every commit fail",
            f'DROP TRIGGER "{trigger}" ON {name}; to follow the table, read its column {MARK}',
        )


def _columns(connection: Connection, name: TableName, oid: int, schema: pa.Schema) -> Iterator[Refusal]:
    rows = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod), attgenerated <> '', attidentity <> '' FROM pg_attribute "
        "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped",
        [oid],
    ).fetchall()
    actual = {column: (type_name, generated, identity) for column, type_name, generated, identity in rows}
    expected = {field.name: required_type(field.type) for field in schema} | {MARK: "bigint"}
    for column, type_name in expected.items():
        if column not in actual:
            yield Refusal(
                f"no longer has column {column!r}",
                f'ALTER TABLE {name} ADD COLUMN "{column}" {type_name}; then milepost realign fills it',
            )
        elif actual[column][1] or actual[column][2]:
            yield Refusal(
                f"computes its column {column!r}",
                f'ALTER TABLE {name} ALTER COLUMN "{column}" DROP EXPRESSION (or DROP IDENTITY)',
            )
        elif actual[column][0] != type_name:
            yield Refusal(
                f"has a column {column!r} of type {actual[column][0]}, expected {type_name}",
                f'ALTER TABLE {name} ALTER COLUMN "{column}" TYPE {type_name}',
            )
    for column in sorted(actual.keys() - expected.keys()):
        yield Refusal(
            f"has a column {column!r} that the sink did not create",
            f'ALTER TABLE {name} DROP COLUMN "{column}"; store additions to rows in another table with the same key',
        )


def _constraints(connection: Connection, name: TableName, oid: int) -> Iterator[Refusal]:
    row = connection.execute(
        "SELECT conname, contype, conrelid::regclass::text FROM pg_constraint "
        "WHERE (conrelid = %s OR confrelid = %s) AND contype IN ('f', 'c', 'x', 'u', 't') ORDER BY conname",
        [oid, oid],
    ).fetchone()
    if row is not None:
        constraint, kind, of = row
        yield Refusal(
            f"has {_CONSTRAINTS[kind]} {constraint}, which a commit or a rollback may violate",
            f'ALTER TABLE {of} DROP CONSTRAINT "{constraint}"',
        )
    required = _first(
        connection,
        "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attnotnull AND "
        "NOT EXISTS (SELECT FROM pg_index WHERE indrelid = attrelid AND indisprimary AND attnum = ANY(indkey))",
        oid,
    )
    if required is not None:
        yield Refusal(
            f"requires values in column {required!r}; the sink's columns are all nullable",
            f'ALTER TABLE {name} ALTER COLUMN "{required}" DROP NOT NULL',
        )
    index = _first(
        connection,
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s AND NOT indisprimary AND "
        "(indisunique OR indexprs IS NOT NULL)",
        oid,
    )
    if index is not None:
        yield Refusal(f"has the index {index}, which is unique or computed and may reject a row", f"DROP INDEX {index}")


def _key(connection: Connection, name: TableName, oid: int, key: tuple[str, ...]) -> Iterator[Refusal]:
    row = connection.execute(
        "SELECT conname, condeferrable, (SELECT array_agg(attname::text) FROM pg_attribute WHERE attrelid = conrelid "
        "AND attnum = ANY(conkey)) FROM pg_constraint WHERE conrelid = %s AND contype = 'p'",
        [oid],
    ).fetchone()
    columns = ", ".join(f'"{column}"' for column in key)
    if row is None:
        yield Refusal("no longer has a primary key", f"ALTER TABLE {name} ADD PRIMARY KEY ({columns})")
    elif row[1] or set(row[2]) != set(key):
        yield Refusal(
            f"has another primary key than ({columns}), or a deferrable one",
            f'ALTER TABLE {name} DROP CONSTRAINT "{row[0]}", ADD PRIMARY KEY ({columns})',
        )


def _first(connection: Connection, query: str, oid: int) -> str | None:
    row = connection.execute(query.encode(), [oid]).fetchone()
    return None if row is None else str(row[0])
