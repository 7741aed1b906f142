"""Sort any number of rows by a key: an external merge sort with sorted runs on disk.

Each run is read piece by piece. A step emits the rows below the smallest of the pieces' last keys, so all rows of a
key are in the same step. Two runs of three pieces each, one letter per row:

    a c | d f | g        step 1: a and b     both pieces end with c; the next pieces, which may start with c, are read
    b c | c e | g        step 2: cd and cc   rows below e; then the next piece of e's run is read
                         step 3: e           step 4: f           step 5: g and g, once both runs have ended
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from milepost.spill.spilled_rows import HELD_BYTES, ORDER_BYTES, RowSpill, read_pieces

_MERGED_RUNS = 128
"""Maximum number of runs in one merge."""

RowReducer = Callable[[pa.Table], pa.Table]
"""Sorts rows. Of several rows with the same key it may drop the older ones, which come first."""


def ordered_rows(
    tables: Iterable[pa.Table], by: Sequence[str], reducer: RowReducer | None = None, *, held_bytes: int | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of tables in ascending order, nulls last. Equal rows keep their input order.

    Args:
        tables: all of one schema.
        by: columns to sort by, of types that Arrow sorts.
        reducer: sorts and reduces rows. It is applied to each run, then again to all rows of a key. None: all rows are
            emitted.
        held_bytes: see `HELD_BYTES`.
    Raises:
        EnvironmentUnusable: the temporary folder cannot store the spilled rows.
    """
    reduce = reducer or (lambda rows: sorted_rows(rows, by))
    joined = joined_tables(tables, HELD_BYTES if held_bytes is None else held_bytes, ORDER_BYTES)
    first, second = next(joined, None), next(joined, None)
    if first is None:
        return
    if second is None:
        yield reduce(first)
        return
    spill = RowSpill()
    runs = [spill.write([reduce(first)])]
    del first
    runs.append(spill.write([reduce(second)]))
    del second
    for rows in joined:
        runs.append(spill.write([reduce(rows)]))
        del rows
    while len(runs) > _MERGED_RUNS:
        groups = (runs[at : at + _MERGED_RUNS] for at in range(0, len(runs), _MERGED_RUNS))
        runs = [spill.write(_merged(map(read_pieces, group), by, reduce)) for group in groups]
    yield from _merged(map(read_pieces, runs), by, reduce)


def sorted_rows(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """Return rows in ascending order, nulls last. Equal rows keep their order."""
    rows = rows.combine_chunks()
    return rows.take(pc.sort_indices(rows.select(list(by)), sort_keys=[(name, "ascending") for name in by]))


def joined_tables(tables: Iterable[pa.Table], held_bytes: int, row_bytes: int = 0) -> Iterator[pa.Table]:
    """Concatenate tables until they exceed `held_bytes`, and yield each result. No result is empty.

    Args:
        row_bytes: memory that each row needs in addition to its values.
    """
    waiting, size = list[pa.Table](), 0
    for rows in tables:
        if rows.num_rows:
            waiting.append(rows)
            size += rows.nbytes + rows.num_rows * row_bytes
        del rows
        if size > held_bytes:
            joined_rows = pa.concat_tables(waiting)
            waiting, size = [], 0
            yield joined_rows
            del joined_rows
    if waiting:
        yield pa.concat_tables(waiting)


def align_by_key(runs: Iterable[Iterable[pa.Table]], by: Sequence[str]) -> Iterator[list[pa.Table | None]]:
    """Yield, for ascending disjoint ranges of keys, the rows that each run has in the range.

    A step has one table per run, or None where the run has no row in the range.

    Args:
        runs: each in ascending order. Only the columns `by` must have the same types in all runs.
    """
    piece_iterators = [iter(run) for run in runs]
    held = [_next(pieces) for pieces in piece_iterators]
    ended = [rows is None for rows in held]
    while not all(ended):
        lasts = [
            _key(rows, rows.num_rows - 1, by) for at, rows in enumerate(held) if rows is not None and not ended[at]
        ]
        bound = sorted_rows(pa.concat_tables(lasts), by).slice(0, 1)
        cuts = [0 if rows is None else _rows_below(rows, bound, by) for rows in held]
        if any(cuts):
            yield [
                rows.slice(0, cut) if rows is not None and cut else None for rows, cut in zip(held, cuts, strict=True)
            ]
        for at, (rows, cut) in enumerate(zip(held, cuts, strict=True)):
            remainder = None if rows is None or cut == rows.num_rows else rows.slice(cut)
            if (
                not ended[at]
                and remainder is not None
                and not _is_below(bound, _key(remainder, remainder.num_rows - 1, by), by)
            ):
                next_piece = _next(piece_iterators[at])
                ended[at] = next_piece is None
                remainder = remainder if next_piece is None else pa.concat_tables([remainder, next_piece])
            held[at] = remainder
        del rows, remainder
    if any(rows is not None for rows in held):
        yield held


def _merged(runs: Iterable[Iterable[pa.Table]], by: Sequence[str], reduce: RowReducer) -> Iterator[pa.Table]:
    for parts in align_by_key(runs, by):
        yield reduce(pa.concat_tables([part for part in parts if part is not None]))


def _next(pieces: Iterator[pa.Table]) -> pa.Table | None:
    return next((rows for rows in pieces if rows.num_rows), None)


def _key(rows: pa.Table, at: int, by: Sequence[str]) -> pa.Table:
    return rows.select(list(by)).slice(at, 1)


def _rows_below(rows: pa.Table, bound: pa.Table, by: Sequence[str]) -> int:
    """Return how many of the sorted rows have a key below `bound`."""
    keys = rows.select(list(by))
    return bisect_left(range(rows.num_rows), True, key=lambda at: not _is_below(keys.slice(at, 1), bound, by))


def _is_below(key: pa.Table, other: pa.Table, by: Sequence[str]) -> bool:
    """Return whether a key sorts before another. A stable sort leaves equal keys in place, so equal is not below."""
    order = pc.sort_indices(pa.concat_tables([other, key]), sort_keys=[(name, "ascending") for name in by])
    return bool(order[0].as_py() == 1)
