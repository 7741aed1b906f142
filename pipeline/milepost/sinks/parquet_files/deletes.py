"""Deletes: rows that mark a key as deleted, by a column that no table shows.

An epoch's changes, and change files, have that column only if the sink's rows may be deletes::

    k  v     __deleted         the table
    1  a     false             1  a
    2  null  true              (key 2 has no row, whatever it had before)

A delete takes part in finding the latest row of a key, and is dropped from the result. A change file keeps its deletes
permanently. A bucket or a compacted table needs none, because it holds every row of its keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.base import DELETED_COLUMN
from milepost.sinks.parquet_files.table_schema import as_changes, latest_per_key

_MARK = pa.field(DELETED_COLUMN, pa.bool_(), nullable=False)


def table_columns(rows: pa.Schema) -> pa.Schema:
    """Return the columns that a table of such rows shows. They are nullable if rows may be deletes."""
    if DELETED_COLUMN not in rows.names:
        return rows
    return pa.schema([field.with_nullable(True) for field in rows if field.name != DELETED_COLUMN])


def schema_with_deletes(columns: pa.Schema) -> pa.Schema:
    """Return the table's columns plus the delete column."""
    return columns.append(_MARK)


def to_change_rows(rows: pa.Table) -> pa.Table:
    """Return rows as a change file stores them: with nullable columns if they may be deletes."""
    if DELETED_COLUMN not in rows.column_names:
        return rows
    schema = schema_with_deletes(table_columns(rows.schema))
    return pa.table([rows.column(name) for name in schema.names], schema=schema)


def align_deletes(tables: Iterable[pa.Table]) -> list[pa.Table]:
    """Return the tables, all with the delete column if one of them has it, so that they can be concatenated."""
    aligned = list(tables)
    if not any(DELETED_COLUMN in table.column_names for table in aligned):
        return aligned
    return [with_delete_column(table) for table in aligned]


def has_live_rows(rows: pa.Table) -> bool:
    """Return whether some row is not a delete."""
    return DELETED_COLUMN not in rows.column_names or not pc.all(rows.column(DELETED_COLUMN)).as_py()


def without_deletes(rows: pa.Table) -> pa.Table:
    """Return the rows that are not deletes, without the delete column."""
    if DELETED_COLUMN not in rows.column_names:
        return rows
    return rows.filter(pc.invert(rows.column(DELETED_COLUMN))).drop_columns([DELETED_COLUMN])


def deleted_keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the deleted keys."""
    if DELETED_COLUMN not in rows.column_names:
        return rows.select(list(key)).slice(0, 0)
    return rows.filter(rows.column(DELETED_COLUMN)).select(list(key))


def changelog_rows(rows: pa.Table, op: str, checkpoint_id: int) -> pa.Table:
    """Return rows as changelog rows: a delete with the operation `delete`, any other row with `op`."""
    ops = pa.repeat(pa.scalar(op, pa.string()), rows.num_rows)
    if DELETED_COLUMN in rows.column_names:
        ops = pc.if_else(rows.column(DELETED_COLUMN), pa.scalar("delete", pa.string()), ops)
        rows = to_change_rows(rows).drop_columns([DELETED_COLUMN])
    return as_changes(rows, ops, checkpoint_id)


def latest_rows(tables: Iterable[pa.Table], key: tuple[str, ...]) -> pa.Table:
    """Return the latest row of each key that is not deleted.

    Args:
        tables: the rows of a table's files, in commit order.
    """
    return without_deletes(latest_per_key(pa.concat_tables(align_deletes(tables)), key))


def with_delete_column(table: pa.Table) -> pa.Table:
    """Return the rows with a delete column, which is false if it is added here."""
    if DELETED_COLUMN in table.column_names:
        return table
    return table.append_column(_MARK, pa.array([False] * table.num_rows, pa.bool_()))
