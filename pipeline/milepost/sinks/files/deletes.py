"""Deletes are rows that say of a key that it has no row any more: a column marks them, which no table shows.

What an epoch changed, and a file of changes, has that column where the sink's rows may be deletes, and else has not::

    k  v     __deleted         the table
    1  a     false             1  a
    2  null  true              (2 has no row, whatever it had before)

A delete takes part wherever the latest row of a key is looked for, and is left out of what comes of it. A file with
such rows may lie above others for ever; one that holds all that a table has, a bucket or a compacted table, needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from milepost.jobspec.graph.edges import DELETED_COLUMN
from milepost.sinks.files.table_schema import as_changes, latest_per_key

_MARK = pa.field(DELETED_COLUMN, pa.bool_(), nullable=False)


def table_columns(rows: pa.Schema) -> pa.Schema:
    """Return the columns that a table of such rows shows; where rows may be deletes each of them may be null."""
    if DELETED_COLUMN not in rows.names:
        return rows
    return pa.schema([field.with_nullable(True) for field in rows if field.name != DELETED_COLUMN])


def schema_with_deletes(columns: pa.Schema) -> pa.Schema:
    """Return the columns of rows that may be deletes, of a table with these."""
    return columns.append(_MARK)


def to_change_rows(rows: pa.Table) -> pa.Table:
    """Return rows as a file of changes has them: where they may be deletes each column may be null."""
    if DELETED_COLUMN not in rows.column_names:
        return rows
    schema = schema_with_deletes(table_columns(rows.schema))
    return pa.table([rows.column(name) for name in schema.names], schema=schema)


def align_deletes(tables: Iterable[pa.Table]) -> list[pa.Table]:
    """Return tables of the same columns, all with the mark when one of them has it."""
    found = list(tables)
    if not any(DELETED_COLUMN in table.column_names for table in found):
        return found
    return [with_delete_column(table) for table in found]


def has_live_rows(rows: pa.Table) -> bool:
    """Return whether rows may be others than deletes."""
    return DELETED_COLUMN not in rows.column_names or not pc.all(rows.column(DELETED_COLUMN)).as_py()


def without_deletes(rows: pa.Table) -> pa.Table:
    """Return the rows that are no deletes, without their mark."""
    if DELETED_COLUMN not in rows.column_names:
        return rows
    return rows.filter(pc.invert(rows.column(DELETED_COLUMN))).drop_columns([DELETED_COLUMN])


def deleted_keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the keys that rows delete."""
    if DELETED_COLUMN not in rows.column_names:
        return rows.select(list(key)).slice(0, 0)
    return rows.filter(rows.column(DELETED_COLUMN)).select(list(key))


def changelog_rows(rows: pa.Table, op: str, checkpoint_id: int) -> pa.Table:
    """Return rows as a changelog has them: a delete as `delete`, with its key, any other as `op`."""
    ops = pa.repeat(pa.scalar(op, pa.string()), rows.num_rows)
    if DELETED_COLUMN in rows.column_names:
        ops = pc.if_else(rows.column(DELETED_COLUMN), pa.scalar("delete", pa.string()), ops)
        rows = to_change_rows(rows).drop_columns([DELETED_COLUMN])
    return as_changes(rows, ops, checkpoint_id)


def latest_rows(tables: Iterable[pa.Table], key: tuple[str, ...]) -> pa.Table:
    """Return what a table shows whose files, in commit order, have these rows: the latest of each key that has one."""
    return without_deletes(latest_per_key(pa.concat_tables(align_deletes(tables)), key))


def with_delete_column(table: pa.Table) -> pa.Table:
    """Return rows with the mark of deletes, which none of them is where they have none."""
    if DELETED_COLUMN in table.column_names:
        return table
    return table.append_column(_MARK, pa.array([False] * table.num_rows, pa.bool_()))
