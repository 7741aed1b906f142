"""A Postgres table as of one read of its head, and compare-and-set commits against that head.

A commit is one transaction. Order of statements: update the head if its version is unchanged (which locks it) -> lock
the table, and check that it is the same table -> write the rows that differ -> delete rows -> COMMIT.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from psycopg import sql

from milepost.errors import (
    CheckpointError,
    CommitConflict,
    CommitOutcomeUnknown,
    InvalidRequest,
)
from milepost.sinks.formats.postgres.database import Connection, Database
from milepost.sinks.formats.postgres.postgres_types import MARK, check_columns, required_type
from milepost.sinks.formats.postgres.refusals import refuse_relation
from milepost.sinks.formats.postgres.row_changes import (
    LineChanges,
    RowChanges,
    line_changes,
    row_changes,
)
from milepost.sinks.formats.postgres.row_lines import copy_bytes, lines_of
from milepost.sinks.formats.postgres.table_head import TableHead, TableName, move_head, read_head, widen_head
from milepost.sinks.parquet_files.table_files import TableFiles
from milepost.sinks.table_format import ForeignCommit, TableMove
from milepost.tables.records import StagedFile, TableOwner

_ROWS = sql.Identifier("pg_temp", "milepost_rows")
_KEYS = sql.Identifier("pg_temp", "milepost_keys")
_PIECE = sql.Identifier("pg_temp", "milepost_piece")


@dataclass(frozen=True, slots=True)
class TableContext:
    """A table's sink, name, key and database, and the files that it is a projection of."""

    sink: str
    name: TableName
    key: tuple[str, ...]
    database: Database
    files: TableFiles

    @property
    def shown(self) -> str:
        """The sink and its table, for messages."""
        return f"sink {self.sink}: its table {self.name}"


class OpenPostgresTable:
    """An open table; see `table_format.OpenTable`. It holds no connection."""

    def __init__(self, context: TableContext, head: TableHead, table_id: str) -> None:
        self._context, self._head = context, head
        self.version, self.table_id = head.version, table_id
        self.readers_version: str | None = None
        self.owner: TableOwner | None = head.owner
        self.number, self.write_id = head.number, head.write_id
        self.schema: pa.Schema | None = head.schema

    def check(self, schema: pa.Schema | None) -> None:
        if schema is not None:
            check_columns(self._context.sink, schema, self._context.key)
        with self._context.database.reading(f"{self._context.shown} was not checked") as connection:
            context = self._context
            refuse_relation(connection, context.sink, context.name, self._head.oid, self._head.schema, context.key)

    def missing_properties(self, owner: TableOwner) -> Mapping[str, str]:
        return {}

    def claim(self, owner: TableOwner, properties: Mapping[str, str], mark: tuple[int, str] | None) -> None:
        """Do nothing: the head names the owner since the table was created, and no other job can take it over."""

    def check_keys(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> None:
        context = self._context
        with context.database.reading(f"{context.shown} was not checked") as connection:
            keys = _TempTable(connection, _KEYS, schema, context.key)
            for rows in pieces:
                keys.add(lines_of(rows.select(context.key)))
            keys.analyze()
            self._refuse_foreign(connection, _KEYS, "Nothing was published.")

    def live_files(self) -> Mapping[str, int] | None:
        return None

    def foreign_commits(self) -> tuple[ForeignCommit, ...]:
        return ()

    def history(self) -> tuple[ForeignCommit, ...]:
        return ()

    def rows_fault(self, files: Sequence[StagedFile]) -> str | None:
        context, schema = self._context, self._head.schema
        with context.database.reading(f"{context.shown} was not compared") as connection:
            self._fold(connection, line_changes(context.files, files, schema, context.key))
            row = connection.execute(
                sql.SQL(
                    "SELECT count(*) FILTER (WHERE t.{first} IS NULL), "
                    "count(*) FILTER (WHERE r.{first} IS NULL AND t.{mark} IS NOT NULL), "
                    "count(*) FILTER (WHERE r.{first} = t.{first} AND t.{mark} IS NULL), "
                    "count(*) FILTER (WHERE r.{first} = t.{first} AND t.{mark} IS NOT NULL "
                    "AND ({stored}) IS DISTINCT FROM ({expected})) FROM {rows} r FULL JOIN {table} t ON {same}"
                ).format(**self._names(), first=sql.Identifier(context.key[0]))
            ).fetchone()
        assert row is not None
        missing, extra, foreign, changed = row
        counts = {
            ("is missing", "are missing"): missing,
            ("was changed", "were changed"): changed,
            ("is in no checkpoint", "are in no checkpoint"): extra,
            ("of another writer has a key of this job", "of another writer have keys of this job"): foreign,
        }
        differences = [
            f"{count} {'row' if count == 1 else 'rows'} {what[count > 1]}" for what, count in counts.items() if count
        ]
        return f"in its table {context.name}, {', '.join(differences)}" if differences else None

    def widen(self, schema: pa.Schema) -> None:
        context = self._context
        check_columns(context.sink, schema, context.key)
        new = [field for field in schema if field.name not in self._head.schema.names]
        with context.database.transaction(f"{context.shown} was not widened") as connection:
            self._assert_unmoved(widen_head(connection, context.name, self._head, schema), connection)
            for field in new:
                connection.execute(
                    sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(context.name.quoted, column_sql(field))
                )

    def commit(self, move: TableMove) -> None:
        context = self._context
        changes = row_changes(context.files, move, context.key)
        failure = f"{context.shown} did not confirm move {move.number}"
        try:
            with context.database.transaction(failure) as connection:
                moved = move_head(connection, context.name, self._head, move.number, move.write_id)
                self._assert_unmoved(moved, connection)
                self._write(connection, move, changes)
        except CommitOutcomeUnknown as unknown:
            self._resolve_outcome(move, unknown)

    # -- the parts of a commit ----------------------------------------------------------------------------------

    def _assert_unmoved(self, is_unmoved: bool, connection: Connection) -> None:
        """Lock the table, and refuse it unless it is the one that was opened. Raises CommitConflict."""
        name = self._context.name
        if is_unmoved:
            connection.execute(sql.SQL("LOCK TABLE {} IN ROW EXCLUSIVE MODE").format(name.quoted))
            row = connection.execute("SELECT to_regclass(%s)::oid", [str(name)]).fetchone()
            if row is not None and row[0] == self._head.oid:
                return
        raise CommitConflict(
            f"{self._context.shown} has changed since it was read: it was moved or recreated by another writer.",
            hint="read it again",
            sink=self._context.sink,
        )

    def _write(self, connection: Connection, move: TableMove, changes: RowChanges) -> None:
        if changes.whole:
            self._fold(connection, changes.pieces)
            self._put(connection, move, differing=True)
            connection.execute(
                sql.SQL(
                    "DELETE FROM {table} t WHERE t.{mark} IS NOT NULL "
                    "AND NOT EXISTS (SELECT FROM {rows} r WHERE {same})"
                ).format(**self._names())
            )
            self._refuse_foreign(connection, _ROWS, "Nothing was moved.")
            return
        schema = self._head.schema
        rows = _TempTable(connection, _ROWS, schema, tuple(schema.names))
        keys = _TempTable(connection, _KEYS, schema, self._context.key)
        for piece in changes.pieces:
            if len(piece.rows):
                rows.fill(piece.rows)
                if self._put(connection, move, differing=False) < len(piece.rows):
                    self._refuse_foreign(connection, _ROWS, "Nothing was moved.")
            if len(piece.deleted):
                keys.fill(piece.deleted)
                connection.execute(
                    sql.SQL("DELETE FROM {table} t USING {keys} r WHERE t.{mark} IS NOT NULL AND {same}").format(
                        **self._names()
                    )
                )

    def _fold(self, connection: Connection, pieces: Iterable[LineChanges]) -> None:
        """Create a temporary table with the result of applying the pieces one after another to an empty table."""
        schema, key, names = self._head.schema, self._context.key, self._names()
        columns = tuple(schema.names)
        folded = _TempTable(connection, _ROWS, schema, columns, key)
        rows, keys = _TempTable(connection, _PIECE, schema, columns), _TempTable(connection, _KEYS, schema, key)
        for piece in pieces:
            if folded.is_empty:
                folded.add(piece.rows)
                continue
            rows.fill(piece.rows)
            put = "INSERT INTO {rows} ({columns}) SELECT {columns} FROM {piece} ON CONFLICT ({key}) DO {update}"
            connection.execute(sql.SQL(put).format(**names))
            if len(piece.deleted):
                keys.fill(piece.deleted)
                connection.execute(sql.SQL("DELETE FROM {rows} t USING {keys} r WHERE {same}").format(**names))
        folded.analyze()

    def _put(self, connection: Connection, move: TableMove, *, differing: bool) -> int:
        """Upsert the copied rows, or only those that differ; return the number written. Foreign rows are left alone."""
        names = self._names()
        only = sql.SQL("AND ({stored}) IS DISTINCT FROM ({excluded})").format(**names) if differing else sql.SQL("")
        return connection.execute(
            sql.SQL(
                "INSERT INTO {table} AS t ({columns}, {mark}) SELECT {columns}, {number} FROM {rows} "
                "ON CONFLICT ({key}) DO UPDATE SET {sets} WHERE t.{mark} IS NOT NULL {only}"
            ).format(**names, number=sql.Literal(move.number), only=only)
        ).rowcount

    def _refuse_foreign(self, connection: Connection, keys: sql.Identifier, now_true: str) -> None:
        """Refuse to overwrite foreign rows, which could not be restored. Raises InvalidRequest."""
        names = self._names() | {"keys": keys}
        row = connection.execute(
            sql.SQL("SELECT count(*) FROM {keys} r JOIN {table} t ON {same} WHERE t.{mark} IS NULL").format(**names)
        ).fetchone()
        if row is not None and row[0]:
            name = self._context.name
            raise InvalidRequest(
                f"{self._context.shown} has {row[0]} rows of another writer under keys of this job. {now_true}",
                hint=f"SELECT * FROM {name} WHERE {MARK} IS NULL shows them: change their keys, or DELETE them",
                sink=self._context.sink,
            )

    def _resolve_outcome(self, move: TableMove, unknown: CommitOutcomeUnknown) -> None:
        """Return if a commit with a lost response has landed.

        The head is read with a lock, because the server may still be processing the transaction.

        Raises: CommitConflict: it did not land, and no longer can. CommitOutcomeUnknown: the head cannot be read.
        """
        context = self._context
        try:
            with context.database.reading(f"{context.shown} was not read back") as connection:
                head = read_head(connection, context.name, self._head.oid, for_update=True)
        except CheckpointError:
            raise unknown from None
        if head is None or (head.number, head.write_id) != (move.number, move.write_id):
            raise CommitConflict(
                f"{context.shown} did not confirm move {move.number}.", hint="try again", sink=context.sink
            )

    def _names(self) -> dict[str, sql.Composable]:
        """Return the parts of SQL statements, by placeholder."""
        columns = self._head.schema.names
        identifiers = [sql.Identifier(column) for column in columns]
        listed = sql.SQL(", ")
        keys = [sql.Identifier(column) for column in self._context.key]
        *values, mark = [
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(column))
            for column in (*columns, MARK)
            if column not in self._context.key
        ]
        update = sql.SQL("UPDATE SET {}").format(listed.join(values)) if values else sql.SQL("NOTHING")
        return {
            "table": self._context.name.quoted,
            "rows": _ROWS,
            "keys": _KEYS,
            "piece": _PIECE,
            "mark": sql.Identifier(MARK),
            "columns": listed.join(identifiers),
            "key": listed.join(keys),
            "sets": listed.join([*values, mark]),
            "update": update,
            "same": sql.SQL(" AND ").join(sql.SQL("t.{0} = r.{0}").format(name) for name in keys),
            "stored": listed.join(sql.SQL("t.{}").format(name) for name in identifiers),
            "expected": listed.join(sql.SQL("r.{}").format(name) for name in identifiers),
            "excluded": listed.join(sql.SQL("excluded.{}").format(name) for name in identifiers),
        }


class _TempTable:
    """A temporary table of the transaction, with these columns and optionally a primary key."""

    def __init__(
        self,
        connection: Connection,
        name: sql.Identifier,
        schema: pa.Schema,
        columns: tuple[str, ...],
        key: tuple[str, ...] = (),
    ) -> None:
        self._connection, self._name, self.is_empty = connection, name, True
        made = [column_sql(schema.field(column)) for column in columns]
        if key:
            made.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, key))))
        statement = sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP")
        connection.execute(statement.format(name, sql.SQL(", ").join(made)))

    def add(self, lines: pa.Array) -> None:
        """Add rows."""
        with self._connection.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN").format(self._name)) as copy:
            for piece in copy_bytes(lines):
                copy.write(piece)
        self.is_empty = False

    def fill(self, lines: pa.Array) -> None:
        """Replace all rows."""
        if not self.is_empty:
            self._connection.execute(sql.SQL("TRUNCATE {}").format(self._name))
        self.add(lines)
        self.analyze()

    def analyze(self) -> None:
        """Update the planner's statistics."""
        self._connection.execute(sql.SQL("ANALYZE {}").format(self._name))


def column_sql(field: pa.Field) -> sql.Composed:
    """Return a column's definition in a CREATE or ALTER statement. Precondition: the column was checked."""
    return sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(required_type(field.type)))
