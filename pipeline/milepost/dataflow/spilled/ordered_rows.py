"""Sort any number of rows by a key: an external merge sort with sorted runs on disk.

A run is read piece by piece. Each step emits the rows below the least of the last keys of all pieces, so that all rows
of a key are in one step. Two runs of three pieces each, one letter per row:

    a c | d f | g        step 1: a and b     both pieces end with c, so the next ones are read, which may have it too
    b c | c e | g        step 2: cd and cc   below e, then e's run gives its next piece
                         step 3: e           step 4: f           step 5: g and g, when both have ended
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from milepost.dataflow.spilled.spilled_rows import HELD_BYTES, ORDER_BYTES, RowSpill, pieces_at

_MERGED_RUNS = 128
"""Runs that are merged at once."""

Newest = Callable[[pa.Table], pa.Table]
"""Puts rows in order; of rows with one key it may leave older ones out, which come first."""


def ordered_rows(
    tables: Iterable[pa.Table], by: Sequence[str], newest: Newest | None = None, *, held_bytes: int | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of tables of one schema in ascending order, nulls last; alike ones in the order they came.

    Args:
        by: columns of types that Arrow sorts. newest: given rows that are complete for their keys, or will be merged
            with others of those; None: all rows stay.
        held_bytes: see `HELD_BYTES`.
    Raises: EnvironmentUnusable: the machine's temporary folder does not take what waits.
    """
    reduced = newest or (lambda rows: sorted_rows(rows, by))
    joined = joined_tables(tables, HELD_BYTES if held_bytes is None else held_bytes, ORDER_BYTES)
    first, second = next(joined, None), next(joined, None)
    if first is None:
        return
    if second is None:
        yield reduced(first)
        return
    spill = RowSpill()
    runs = [spill.keep([reduced(first)])]
    del first
    runs.append(spill.keep([reduced(second)]))
    del second
    for rows in joined:
        runs.append(spill.keep([reduced(rows)]))
        del rows
    while len(runs) > _MERGED_RUNS:
        groups = (runs[at : at + _MERGED_RUNS] for at in range(0, len(runs), _MERGED_RUNS))
        runs = [spill.keep(_merged(map(pieces_at, group), by, reduced)) for group in groups]
    yield from _merged(map(pieces_at, runs), by, reduced)


def sorted_rows(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """Return rows in ascending order, nulls last; rows that are alike in the order they are in."""
    rows = rows.combine_chunks()
    return rows.take(pc.sort_indices(rows.select(list(by)), sort_keys=[(name, "ascending") for name in by]))


def joined_tables(tables: Iterable[pa.Table], held_bytes: int, row_bytes: int = 0) -> Iterator[pa.Table]:
    """Yield tables joined until they have more than so many bytes, none empty. row_bytes: what a row takes beside."""
    waiting, size = list[pa.Table](), 0
    for rows in tables:
        if rows.num_rows:
            waiting.append(rows)
            size += rows.nbytes + rows.num_rows * row_bytes
        del rows
        if size > held_bytes:
            together = pa.concat_tables(waiting)
            waiting, size = [], 0
            yield together
            del together
    if waiting:
        yield pa.concat_tables(waiting)


def in_step(runs: Iterable[Iterable[pa.Table]], by: Sequence[str]) -> Iterator[list[pa.Table | None]]:
    """Yield of each run its rows within a range of keys, step by step: ranges ascend, and a key is in one of them.

    Where a run has none, None stands for them.

    Args:
        runs: in ascending order, of any columns, but for those of `by`, which have the same types in all.
    """
    following = [iter(run) for run in runs]
    held = [_next(pieces) for pieces in following]
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
            left = None if rows is None or cut == rows.num_rows else rows.slice(cut)
            if not ended[at] and left is not None and not _is_below(bound, _key(left, left.num_rows - 1, by), by):
                more = _next(following[at])
                ended[at] = more is None
                left = left if more is None else pa.concat_tables([left, more])
            held[at] = left
        del rows, left
    if any(rows is not None for rows in held):
        yield held


def _merged(runs: Iterable[Iterable[pa.Table]], by: Sequence[str], newest: Newest) -> Iterator[pa.Table]:
    for parts in in_step(runs, by):
        yield newest(pa.concat_tables([part for part in parts if part is not None]))


def _next(pieces: Iterator[pa.Table]) -> pa.Table | None:
    return next((rows for rows in pieces if rows.num_rows), None)


def _key(rows: pa.Table, at: int, by: Sequence[str]) -> pa.Table:
    return rows.select(list(by)).slice(at, 1)


def _rows_below(rows: pa.Table, bound: pa.Table, by: Sequence[str]) -> int:
    """Return how many of sorted rows have a key below one."""
    keys = rows.select(list(by))
    return bisect_left(range(rows.num_rows), True, key=lambda at: not _is_below(keys.slice(at, 1), bound, by))


def _is_below(one: pa.Table, other: pa.Table, by: Sequence[str]) -> bool:
    """Return whether a key comes before another one; of equal ones a stable sort leaves the first where it is."""
    order = pc.sort_indices(pa.concat_tables([other, one]), sort_keys=[(name, "ascending") for name in by])
    return bool(order[0].as_py() == 1)
