"""Refuse Postgres tables with features that Milepost's writes would break, or that would break them.

This is checked before the commit point of every epoch. A feature that is added between the check and the commit makes
the commit fail as a whole, and the sink waits.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from milepost.errors import EnvironmentUnusable, InvalidRequest
from milepost.sinks.formats.postgres.database import Connection, is_true
from milepost.sinks.formats.postgres.postgres_types import MARK, required_type
from milepost.sinks.formats.postgres.table_head import TableName

KINDS = {
    "v": "a view", "m": "a materialized view", "p": "partitioned", "f": "a foreign table", "S": "a sequence",
    "i": "an index", "c": "a type", "I": "an index", "t": "a table of long values",
}  # fmt: skip
_CONSTRAINTS = {"f": "the foreign key", "c": "the check", "x": "the exclusion", "u": "the unique constraint",
                "t": "the constraint trigger"}  # fmt: skip
Reason = tuple[str, str]


def refuse_table(
    connection: Connection, sink: str, name: TableName, oid: int, schema: pa.Schema, key: tuple[str, ...]
) -> None:
    """Refuse a table that Milepost cannot write, or only by breaking what was added to it.

    Args:
        schema: the columns with which the table was created.
    Raises: InvalidRequest, EnvironmentUnusable: the first reason.
    """
    for right in _missing_rights(connection, name, oid):
        raise EnvironmentUnusable(
            f"sink {sink}: its table {name}: the sink's user has no right to {right[0]}. Nothing was published.",
            hint=right[1],
            sink=sink,
        )
    for reason, hint in _reasons(connection, name, oid, schema, key):
        raise InvalidRequest(f"sink {sink}: its table {name} {reason}. Nothing was published.", hint=hint, sink=sink)


def _missing_rights(connection: Connection, name: TableName, oid: int) -> Iterator[Reason]:
    for right in ("SELECT", "INSERT", "UPDATE", "DELETE"):
        if not is_true(connection, "SELECT has_table_privilege(%s::oid, %s)", oid, right):
            yield f"{right} on it", f"GRANT {right} ON {name} TO the sink's user"
    for right in ("SELECT", "UPDATE"):
        if not is_true(connection, "SELECT has_table_privilege(%s, %s)", name.heads.as_string(), right):
            yield (
                f"{right} on {name.heads.as_string()}",
                f"GRANT {right} ON {name.heads.as_string()} TO the sink's user",
            )
    if not is_true(connection, "SELECT has_database_privilege(current_database(), 'TEMP')"):
        yield "make temporary tables", "GRANT TEMPORARY ON DATABASE … TO the sink's user"


def _reasons(
    connection: Connection, name: TableName, oid: int, schema: pa.Schema, key: tuple[str, ...]
) -> Iterator[Reason]:
    yield from _structure(connection, name, oid)
    yield from _columns(connection, name, oid, schema)
    yield from _key(connection, name, oid, key)
    yield from _constraints(connection, name, oid)


def _structure(connection: Connection, name: TableName, oid: int) -> Iterator[Reason]:
    row = connection.execute(
        "SELECT relpersistence, relhasrules, row_security_active(oid), relispartition, "
        "EXISTS (SELECT FROM pg_inherits WHERE inhparent = oid OR inhrelid = oid) FROM pg_class WHERE oid = %s",
        [oid],
    ).fetchone()
    if row is None:
        return
    persistence, has_rules, row_security, is_partition, inherits = row
    if persistence != "p":
        yield "is not kept through a crash of the server", f"ALTER TABLE {name} SET LOGGED"
    if has_rules:
        rule = _first(connection, "SELECT rulename FROM pg_rewrite WHERE ev_class = %s", oid)
        yield f"has the rule {rule}, which changes what is written", f'DROP RULE "{rule}" ON {name}'
    if row_security:
        yield (
            "has row level security, which hides rows from the sink's user",
            f"ALTER TABLE {name} DISABLE ROW LEVEL SECURITY",
        )
    if is_partition or inherits:
        yield "is part of a partitioned table, or others inherit it", "give the sink a table of its own"
    trigger = _first(
        connection,
        "SELECT tgname FROM pg_trigger WHERE tgrelid = %s AND NOT tgisinternal AND tgenabled <> 'D'",
        oid,
    )
    if trigger is not None:
        yield (
            f"has the trigger {trigger}, whose failure would keep every commit from landing",
            f'DROP TRIGGER "{trigger}" ON {name}; to follow the table, read its column {MARK}',
        )


def _columns(connection: Connection, name: TableName, oid: int, schema: pa.Schema) -> Iterator[Reason]:
    rows = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod), attgenerated <> '', attidentity <> '' FROM pg_attribute "
        "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped",
        [oid],
    ).fetchall()
    actual = {column: (type_name, generated, identity) for column, type_name, generated, identity in rows}
    expected = {field.name: required_type(field.type) for field in schema} | {MARK: "bigint"}
    for column, type_name in expected.items():
        if column not in actual:
            yield (
                f"has no column {column!r} any more",
                f'ALTER TABLE {name} ADD COLUMN "{column}" {type_name}; then milepost realign fills it',
            )
        elif actual[column][1] or actual[column][2]:
            yield (
                f"computes its column {column!r}",
                f'ALTER TABLE {name} ALTER COLUMN "{column}" DROP EXPRESSION (or DROP IDENTITY)',
            )
        elif actual[column][0] != type_name:
            yield (
                f"has a column {column!r} of type {actual[column][0]}, it was made as {type_name}",
                f'ALTER TABLE {name} ALTER COLUMN "{column}" TYPE {type_name}',
            )
    for column in sorted(actual.keys() - expected.keys()):
        yield (
            f"has a column {column!r} that the sink did not make",
            f'ALTER TABLE {name} DROP COLUMN "{column}"; what is added to rows lies in a table of its own, by the key',
        )


def _constraints(connection: Connection, name: TableName, oid: int) -> Iterator[Reason]:
    row = connection.execute(
        "SELECT conname, contype, conrelid::regclass::text FROM pg_constraint "
        "WHERE (conrelid = %s OR confrelid = %s) AND contype IN ('f', 'c', 'x', 'u', 't') ORDER BY conname",
        [oid, oid],
    ).fetchone()
    if row is not None:
        constraint, kind, of = row
        yield (
            f"is bound by {_CONSTRAINTS[kind]} {constraint}, which a commit or a rollback may break",
            f'ALTER TABLE {of} DROP CONSTRAINT "{constraint}"',
        )
    required = _first(
        connection,
        "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attnotnull AND "
        "NOT EXISTS (SELECT FROM pg_index WHERE indrelid = attrelid AND indisprimary AND attnum = ANY(indkey))",
        oid,
    )
    if required is not None:
        yield (
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
        yield f"has the index {index}, which is unique or computes: a row may not fit it", f"DROP INDEX {index}"


def _key(connection: Connection, name: TableName, oid: int, key: tuple[str, ...]) -> Iterator[Reason]:
    row = connection.execute(
        "SELECT conname, condeferrable, (SELECT array_agg(attname::text) FROM pg_attribute WHERE attrelid = conrelid "
        "AND attnum = ANY(conkey)) FROM pg_constraint WHERE conrelid = %s AND contype = 'p'",
        [oid],
    ).fetchone()
    columns = ", ".join(f'"{column}"' for column in key)
    if row is None:
        yield "has no primary key any more", f"ALTER TABLE {name} ADD PRIMARY KEY ({columns})"
    elif row[1] or set(row[2]) != set(key):
        yield (
            f"has another primary key than ({columns}), or a deferrable one",
            f'ALTER TABLE {name} DROP CONSTRAINT "{row[0]}", ADD PRIMARY KEY ({columns})',
        )


def _first(connection: Connection, query: str, oid: int) -> str | None:
    row = connection.execute(query.encode(), [oid]).fetchone()
    return None if row is None else str(row[0])
