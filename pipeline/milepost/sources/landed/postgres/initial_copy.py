"""Copy a table by ranges of its key, one record per range.

The rows are as of when their record was read, at or after the slot's consistent point. Each later change of a row is
in the slot. So rows of the copy have the consistent point as their LSN, and a row of the stream is newer::

    consistent point 100     copy: id 1 … 50 000      copy: id 50 001 … 80 000      stream: changes from 100 on
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from psycopg import sql

from milepost.sources.landed.postgres.change_rows import (
    BATCH_BYTES,
    BATCH_ROWS,
    Limits,
    TableRows,
    Transaction,
    rows_batch,
)
from milepost.sources.landed.postgres.pgoutput import Begin
from milepost.sources.landed.postgres.positions import CopyPosition
from milepost.sources.landed.postgres.row_plan import COPY
from milepost.sources.landed.postgres.server import Connection
from milepost.sources.landed.postgres.table import TableName

_FETCHED_BYTES = 4 << 20
_TYPES = """
SELECT a.attname, format_type(a.atttypid, -1) FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND a.attname = ANY (%s)
"""


@dataclass(frozen=True, slots=True)
class Copied:
    """The end of a range.

    Attributes:
        after: texts of its last key. is_whole: whether it was the last range.
    """

    after: tuple[str, ...] | None
    is_whole: bool


def begin_copy(connection: Connection, time_us: int) -> CopyPosition:
    """Return the position before the first row, after the slot was created. time_us: before it was created."""
    row = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
    assert row is not None
    return CopyPosition(None, row[0], time_us)


def is_waiting(connection: Connection, position: CopyPosition) -> bool:
    """Return whether a transaction is open that was open when the copy began."""
    row = connection.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint").fetchone()
    assert row is not None
    return bool(row[0] < position.since)


def copy_rows(
    connection: Connection, name: TableName, table: TableRows, position: CopyPosition, lsn: int, limits: Limits
) -> Iterator[pa.RecordBatch | Copied]:
    """Yield the rows of one range, in the order of the key, and at last its end.

    Args:
        lsn: the consistent point. limits: of the range.
    Raises: UnfitValue. psycopg.Error.
    """
    part = Transaction(Begin(lsn, position.time_us, 0))
    count = size = 0
    after = position.after
    declared = tuple(table.declared)
    key = [declared.index(column) for column in table.key]
    for values in _values(connection, name, table, position.after, limits.max_rows + 1):
        if count and (count >= limits.max_rows or size >= limits.max_bytes):
            yield rows_batch(table, [part])
            yield Copied(after, is_whole=False)
            return
        part.rows.append((COPY, values))
        part.bytes += sum(len(text) for text in values if text is not None)
        count, size = count + 1, size + sum(len(text) for text in values if text is not None)
        after = tuple((values[at] or b"").decode() for at in key)
        if len(part.rows) >= BATCH_ROWS or part.bytes >= BATCH_BYTES:
            yield rows_batch(table, [part])
            part.rows, part.bytes = [], 0
    if part.rows:
        yield rows_batch(table, [part])
    yield Copied(after, is_whole=True)


def _values(
    connection: Connection, name: TableName, table: TableRows, after: Sequence[str] | None, limit: int
) -> Iterator[tuple[bytes | None, ...]]:
    """Yield the texts of the declared columns, as the types' output functions write them."""
    texts = sql.SQL(", ").join(
        sql.SQL("CASE WHEN {0} IS NULL THEN NULL ELSE convert_to(format('%s', {0}), 'UTF8') END").format(
            sql.Identifier(column)
        )
        for column in table.declared
    )
    keys = sql.SQL(", ").join(map(sql.Identifier, table.key))
    condition: sql.Composable = sql.SQL("true")
    if after is not None:
        types: dict[str, str] = dict(connection.execute(_TYPES, [name.schema, name.table, list(table.key)]).fetchall())
        bounds = sql.SQL(", ").join(
            sql.SQL("{}::text::{}").format(sql.Literal(text), sql.SQL(types[column]))
            for column, text in zip(table.key, after, strict=True)
        )
        condition = sql.SQL("({}) > ({})").format(keys, bounds)
    query = sql.SQL("SELECT {} FROM ONLY {} WHERE {} ORDER BY {} LIMIT {}").format(
        texts, sql.Identifier(name.schema, name.table), condition, keys, sql.Literal(limit)
    )
    with connection.cursor(name="milepost_copy", binary=True) as cursor:
        cursor.execute(query)  # without parameters, so that a % in a name is literal
        yield from fetched(cursor)


def fetched(cursor: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a server-side cursor, about 4 MB at a time."""
    count = 10  # shows how large rows are
    while rows := cursor.fetchmany(count):
        yield from rows
        size = sum(len(value) for row in rows for value in row if value is not None)
        count = max(1, min(5_000, _FETCHED_BYTES * len(rows) // max(size, 1)))
