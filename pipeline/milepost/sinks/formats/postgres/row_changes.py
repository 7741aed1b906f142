"""Compute the rows that a move must write and delete, from the files before and after.

The first files now and then show the same rows (`content_digests.py`), so keys that are in none of the others have
the same row::

    now    a b c d       keys of c, d, e alone: their latest row in a b c d, and in a b e;
    then   a b e         one that differs is written, a key without a row then is deleted

A move that only adds files reads just those, piece by piece. If the rows of the table are unknown or not to be trusted,
or if the differing files have too many rows, the files are loaded into a temporary table one after another, and the
database compares the whole table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import StateCorrupt
from milepost.sinks.formats.postgres.row_lines import lines_of
from milepost.sinks.parquet_files.deletes import deleted_keys, latest_rows, without_deletes
from milepost.sinks.parquet_files.file_cuts import cut_by_bytes
from milepost.sinks.parquet_files.table_files import ReadOptions, TableFiles
from milepost.sinks.parquet_files.table_schema import latest_per_key
from milepost.sinks.table_format import TableMove
from milepost.tables.records import StagedFile, common_prefix

MOST_ROWS = 1_000_000
"""Maximum number of rows, in files of only one side, that are compared in memory."""

TOGETHER_BYTES = 8 << 20
"""Total size of files whose rows are written together."""


@dataclass(frozen=True, slots=True)
class LineChanges:
    """COPY lines of rows to write, one per key, and of other keys to delete, which may have no row."""

    rows: pa.Array
    deleted: pa.Array


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The changes of a move to the rows of a table.

    Attributes:
        pieces: to apply in this order. Reading them may raise StateCorrupt.
        whole: applied to an empty table, they give all rows; the job's other rows are deleted.
    """

    pieces: Iterable[LineChanges]
    whole: bool = False


def row_changes(files: TableFiles, move: TableMove, key: tuple[str, ...]) -> RowChanges:
    """Return the changes of a move. Raises StateCorrupt: a required file is missing or altered."""
    whole = RowChanges(line_changes(files, move.after, move.schema, key), whole=True)
    if move.before is None:
        return whole
    same_before, same_after = common_prefix(move.before, move.after)
    removed, entered = move.before[same_before:], move.after[same_after:]
    if not removed:
        return RowChanges(line_changes(files, entered, move.schema, key))
    if sum(file.rows for file in (*removed, *entered)) > MOST_ROWS:
        return whole
    try:
        rows_removed = files.rows(removed, ReadOptions(move.schema, verify=True, deletes=True))
    except StateCorrupt:  # the target files may be intact: this may be the rollback that repairs the table
        return whole
    rows_entered = files.rows(entered, ReadOptions(move.schema, verify=True, deletes=True))
    affected = pc.unique(lines_of(pa.concat_tables([rows_removed.select(key), rows_entered.select(key)])))
    below = list(_rows_of_keys(files, move.after[:same_after], move.schema, key, affected))
    before = latest_rows([*below, rows_removed], key)
    after = latest_rows([*below, rows_entered], key)
    lines_after = lines_of(after)
    changed = pc.invert(pc.is_in(lines_after, value_set=lines_of(before)))
    keys_before = lines_of(before.select(key))
    deleted = pc.invert(pc.is_in(keys_before, value_set=lines_of(after.select(key))))
    return RowChanges((LineChanges(lines_after.filter(changed), keys_before.filter(deleted)),))


def line_changes(
    files: TableFiles, of: Sequence[StagedFile], schema: pa.Schema, key: tuple[str, ...]
) -> Iterator[LineChanges]:
    """Yield the changes of the topmost files, in their order; small files are read together.

    Raises: StateCorrupt.
    """
    for batch in cut_by_bytes(of, TOGETHER_BYTES):
        pieces: Iterable[pa.Table] = files.pieces(batch[0], ReadOptions(schema, verify=True, deletes=True))
        if len(batch) > 1:
            pieces = [files.rows(batch, ReadOptions(schema, verify=True, deletes=True))]
        for piece in pieces:
            rows = latest_per_key(piece, key)
            yield LineChanges(lines_of(without_deletes(rows)), lines_of(deleted_keys(rows, key)))


def _rows_of_keys(
    files: TableFiles, of: Sequence[StagedFile], schema: pa.Schema, key: tuple[str, ...], wanted: pa.Array
) -> Iterator[pa.Table]:
    """Yield the rows with these keys, with deletes, piece by piece, because the table may be large."""
    for file in of:
        for rows in files.pieces(file, ReadOptions(schema, verify=True, deletes=True)):
            yield rows.filter(pc.is_in(lines_of(rows.select(key)), value_set=wanted))
