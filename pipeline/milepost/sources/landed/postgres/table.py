"""Check the table and the publication of a source before they are landed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from milepost.language import ColumnType
from milepost.sources.landed.postgres.failures import Failures
from milepost.sources.landed.postgres.pgoutput import Column, Relation
from milepost.sources.landed.postgres.row_plan import UnfitTable, plan_rows
from milepost.sources.landed.postgres.server import Connection

_TABLE = """
SELECT c.oid, c.relkind::text, c.relreplident::text, c.reltoastrelid <> 0, c.relpersistence::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""
_COLUMNS = """
SELECT a.attname, a.atttypid, a.attstorage::text <> 'p' AND a.attlen = -1, a.attgenerated::text <> '',
       COALESCE(a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]), false)
FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid
     AND CASE %(identity)s WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END
WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_UNIQUE = """
SELECT array_agg(a.attname::text) FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
      AND i.indimmediate
GROUP BY i.indexrelid HAVING bool_and(a.attnotnull)
"""
_PUBLICATION = """
SELECT p.oid::text, p.puballtables, p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate,
       (SELECT array_agg(r.oid::text || '/' || r.prrelid::text) FROM pg_publication_rel r WHERE r.prpubid = p.oid),
       (SELECT to_jsonb(t) FROM pg_publication_tables t
        WHERE t.pubname = p.pubname AND t.schemaname = %s AND t.tablename = %s)
FROM pg_publication p WHERE p.pubname = %s
"""
_NAMESPACES = "SELECT to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL"
_SCHEMAS = "SELECT EXISTS (SELECT FROM pg_publication_namespace WHERE pnpubid = %s::text::oid)"


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's schema and name."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication of one table.

    Attributes:
        oid: of the publication. member: oid of the table in it, which changes if the table is removed and added again.
        columns: names of the published columns; None: the server is too old to say.
    """

    oid: str
    member: str
    columns: frozenset[str] | None


def find_table(connection: Connection, name: TableName, failures: Failures) -> tuple[int, str, bool]:
    """Return the table's oid, its replica identity, and whether values may be stored out of line.

    Raises: InvalidRequest: it does not exist, or is no plain table.
    """
    row = connection.execute(_TABLE, [name.schema, name.table]).fetchone()
    if row is None:
        raise failures.invalid(f"there is no table {name}", "create the table, or correct `table`, then land again")
    oid, kind, identity, has_toast, persistence = row
    if kind != "r" or persistence != "p":
        what = {"p": "is partitioned", "v": "is a view", "f": "is a foreign table"}.get(kind, "is not written to WAL")
        raise failures.invalid(
            f"{name} {what}; expected a plain table", "name a plain table: each partition is a source of its own"
        )
    return oid, identity, has_toast


def find_publication(
    connection: Connection, publication: str, name: TableName, oid: int, failures: Failures
) -> Publication:
    """Return the publication. Raises InvalidRequest: it does not exist, or does not publish this table alone."""
    row = connection.execute(_PUBLICATION, [name.schema, name.table, publication]).fetchone()
    create = f'CREATE PUBLICATION "{publication}" FOR TABLE "{name.schema}"."{name.table}"'
    if row is None:
        raise failures.invalid(f"there is no publication {publication}", f"{create}, then land again")
    publication_oid, is_all, has_all_operations, members, found = row
    others = [member for member in members or () if member.rpartition("/")[2] != str(oid)]
    if is_all or others or _has_schemas(connection, publication_oid):
        raise failures.invalid(
            f"publication {publication} publishes other tables than {name}; expected one for this table alone",
            f"give each source a publication of its own: {create}",
        )
    if found is None or not members:
        raise failures.invalid(
            f"table {name} is not in publication {publication}",
            f'ALTER PUBLICATION "{publication}" ADD TABLE "{name.schema}"."{name.table}"; changes before that are not '
            "published",
        )
    if not has_all_operations:
        raise failures.invalid(
            f"publication {publication} leaves out some operations, so rows would differ from the table's",
            f"ALTER PUBLICATION \"{publication}\" SET (publish = 'insert, update, delete, truncate')",
        )
    if found.get("rowfilter"):
        raise failures.invalid(
            f"publication {publication} has a row filter for {name}", "remove its WHERE, and filter in the job"
        )
    columns = found.get("attnames")
    return Publication(publication_oid, members[0].partition("/")[0], None if columns is None else frozenset(columns))


def check_columns(
    connection: Connection,
    name: TableName,
    publication: Publication,
    declared: Mapping[str, ColumnType],
    key: tuple[str, ...],
    failures: Failures,
) -> Relation:
    """Check that the table, as it is now, can be landed: its columns, types, key and replica identity.

    A log that has begun is not checked: older changes may have been made to an older definition.

    Returns: the table as a relation.
    Raises: InvalidRequest.
    """
    oid, identity, has_toast = find_table(connection, name, failures)
    rows = connection.execute(_COLUMNS, {"oid": oid, "identity": identity}).fetchall()
    published = publication.columns
    is_full = identity == "f"
    columns = tuple(
        Column(column, type_oid, is_full or is_identity)
        for column, type_oid, _, is_generated, is_identity in rows
        if (column in published if published is not None else not is_generated)
    )
    relation = Relation(oid, name.schema, name.table, identity, columns)
    try:
        plan_rows(relation, declared, key)
    except UnfitTable as unfit:
        raise failures.invalid(f"table {name}: {unfit.reason}", unfit.hint) from unfit
    out_of_line = [column for column, _, is_out_of_line, *_ in rows if is_out_of_line and column in declared]
    if has_toast and out_of_line and not is_full:
        raise failures.invalid(
            f"table {name}: Postgres may store {', '.join(out_of_line)} out of line (TOAST). An update that does not "
            "change such a value sends it only with REPLICA IDENTITY FULL, and without it the row is incomplete",
            f'ALTER TABLE "{name.schema}"."{name.table}" REPLICA IDENTITY FULL, or remove the columns from `schema`',
        )
    unique: list[Any] = [set(row[0]) for row in connection.execute(_UNIQUE, [oid]).fetchall()]
    if set(key) not in unique:
        raise failures.invalid(
            f"table {name} has no unique index of required columns on `key`, {', '.join(key)}",
            "name the columns of its primary key in `key`",
        )
    return relation


def _has_schemas(connection: Connection, publication_oid: str) -> bool:
    """Return whether a publication publishes all tables of a schema, which is possible since Postgres 15."""
    row = connection.execute(_NAMESPACES).fetchone()
    if row is None or not row[0]:
        return False
    row = connection.execute(_SCHEMAS, [publication_oid]).fetchone()
    return row is not None and bool(row[0])
