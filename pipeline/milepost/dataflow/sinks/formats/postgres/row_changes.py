"""Rows to write are worked out from files: what a table shows now, and what it is to show, by the latest row per key.

Files before the first difference are the same now and then, so keys that are in none of the others have the same row::

    now    a b c d       keys of c, d, e alone: their latest row in a b c d, and in a b e;
    then   a b e         one that differs is written, a key without a row then is deleted

A move that only adds files reads just those. Where nobody knows what the table shows, or it is not to be trusted, all
that it is to show is compared with what is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import pyarrow as pa
import pyarrow.compute as pc

from milepost.dataflow.sinks.files.deletes import deleted_keys, latest_rows, rows_that_stay
from milepost.dataflow.sinks.files.table_files import TableFiles
from milepost.dataflow.sinks.files.table_schema import latest_per_key
from milepost.dataflow.sinks.formats.postgres.row_lines import lines_of
from milepost.dataflow.sinks.records.committables import StagedFile
from milepost.dataflow.sinks.table_format import TableMove
from milepost.protocol.records.errors import StateCorrupt


@dataclass(frozen=True, slots=True)
class RowChanges:
    """What a move does to the rows of a table.

    Attributes:
        rows: lines of rows to write, one per key. gone: lines of the keys whose rows go, also of some that have none.
        whole: `rows` is all that there is to be: other rows of ours go, and `gone` is empty.
    """

    rows: pa.Array
    gone: pa.Array
    whole: bool = False


def row_changes(files: TableFiles, move: TableMove, key: tuple[str, ...]) -> RowChanges:
    """Return what a move does. Raises StateCorrupt: a file that it needs is gone or another."""
    none = pa.array([], pa.large_string())
    if move.before is None:
        return RowChanges(latest_lines(files, move.after, move.schema, key), none, whole=True)
    same = sum(
        1 for _ in takewhile(lambda pair: pair[0].key == pair[1].key, zip(move.before, move.after, strict=False))
    )
    left, entered = move.before[same:], move.after[same:]
    if not left:
        rows = latest_per_key(files.rows(entered, move.schema, verify=True, deletes=True), key)
        return RowChanges(lines_of(rows_that_stay(rows)), lines_of(deleted_keys(rows, key)))
    try:
        rows_left = files.rows(left, move.schema, verify=True, deletes=True)
    except StateCorrupt:  # what the table is to show may be whole: going back may be how that is mended
        return RowChanges(latest_lines(files, move.after, move.schema, key), none, whole=True)
    rows_entered = files.rows(entered, move.schema, verify=True, deletes=True)
    concerned = pc.unique(lines_of(pa.concat_tables([rows_left.select(key), rows_entered.select(key)])))
    below = _rows_of_keys(files, move.before[:same], move.schema, key, concerned)
    now = latest_rows([*below, rows_left], key)
    then = latest_rows([*below, rows_entered], key)
    lines_then = lines_of(then)
    changed = pc.invert(pc.is_in(lines_then, value_set=lines_of(now)))
    keys_now = lines_of(now.select(key))
    gone = pc.invert(pc.is_in(keys_now, value_set=lines_of(then.select(key))))
    return RowChanges(lines_then.filter(changed), keys_now.filter(gone))


def latest_lines(files: TableFiles, of: Sequence[StagedFile], schema: pa.Schema, key: tuple[str, ...]) -> pa.Array:
    """Return the lines of what a table of these files shows. Raises StateCorrupt."""
    return lines_of(files.latest(of, schema, key, verify=True))


def _rows_of_keys(
    files: TableFiles, of: Sequence[StagedFile], schema: pa.Schema, key: tuple[str, ...], wanted: pa.Array
) -> list[pa.Table]:
    """Return the rows with these keys, with deletes, file by file: of a large table a few are wanted."""
    found = []
    for file in of:
        rows = files.fetch(file, schema, verify=True, deletes=True)
        found.append(rows.filter(pc.is_in(lines_of(rows.select(key)), value_set=wanted)))
    return found
