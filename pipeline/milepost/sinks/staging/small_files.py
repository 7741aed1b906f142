"""Small files of a table are joined, a few at a time, so that readers open few and no row is written often.

An epoch adds some files, however few rows it has. Files that lie side by side in a partition are joined when together
they have `GROWTH` times the rows of the largest one: a joined row lies in a file so many times as large, so it is
written again at most as often as the logarithm of a full file. With a growth of 4, and epochs of one file of one row:

    1 1 1 1            -> 4
    4 1 1 1 1          -> 4 4
    4 4 4 4            -> 16          at most 3 of each size are left

Files of half the wanted size stay as they are; what lies between two of them grows no more, and is joined at once.

Files of changes to a table of the latest rows (`compaction.py`) are joined so, too: their joined file has the last row
of each key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby

import pyarrow as pa

from milepost.errors import ProtocolViolation
from milepost.sinks.files.file_cuts import cut_by_bytes
from milepost.sinks.records.committables import JoinedFile, PartitionValues, StagedFile
from milepost.sinks.records.table_keys import staged_by

GROWTH = 8
WANTED_BYTES = 64 << 20
"""Of a joined file; a subtask joins about so much in one epoch."""

MOST_FILES = 4096
"""So many small files at most are joined by one epoch; the next one goes on."""

_MODULUS = 1 << 256

Run = tuple[StagedFile, ...]
"""Files that are to be joined, in the table's order."""


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """The small files that one epoch joins.

    Attributes:
        runs: those with the fewest rows first. schema: columns of the table.
    """

    runs: tuple[Run, ...]
    schema: pa.Schema

    def share(self, subtask: int, subtasks: int) -> JoinPlan:
        """Return what one subtask joins: its part of the runs, as far as its bytes go."""
        own = self.runs[subtask::subtasks]
        sizes = accumulate(sum(file.size for file in run) for run in own)
        return replace(self, runs=tuple(run for run, size in zip(own, sizes, strict=True) if size <= WANTED_BYTES))


def plan_joins(files: Iterable[StagedFile]) -> tuple[Run, ...]:
    """Return which files of a table an epoch joins; none is named twice.

    Args:
        files: of the table, in commit order.
    """
    runs = sorted(
        chain.from_iterable(map(_runs, by_partition(files).values())), key=lambda run: sum(file.rows for file in run)
    )
    counts = accumulate(len(run) for run in runs)
    return tuple(run for run, count in zip(runs, counts, strict=True) if count <= MOST_FILES)


def still_there(joined: Sequence[JoinedFile], known: Iterable[StagedFile], *, latest: bool) -> tuple[JoinedFile, ...]:
    """Return what subtasks joined, but for what an engine has put together meanwhile.

    Args:
        known: files of the table as it is. latest: of each key the last row stays, not every row.
    Raises: ProtocolViolation: a joined file has not the rows of those that it joins.
    """
    rows = {file.key: file.rows for file in known}
    found = tuple(one for one in joined if rows.keys() >= set(one.of))
    for one in found:
        expected = sum(rows[key] for key in one.of)
        if one.file.rows > expected or (one.file.rows < expected and not latest):
            raise ProtocolViolation(
                f"{one.file.key} has {one.file.rows} rows, the files that it joins {expected}. Nothing was published."
            )
    return found


def rows_identity(files: Iterable[StagedFile]) -> str | None:
    """Return what tells the rows of some files together, however they are cut; None: of one it is not known.

    It is the sum of the digests under which the rows were first written, so a joined file has that of its parts.
    """
    digests = [_digest(file) for file in files]
    return None if None in digests else f"{sum(filter(None, digests)) % _MODULUS:064x}"


def same_rows(removed: Sequence[StagedFile], added: Sequence[StagedFile]) -> frozenset[str]:
    """Return the keys of those files of a move that hold the same rows before and after.

        removed a b c d, added j (joins a b c), k   ->  a b c j
        removed j, added a b                        ->  none: c is gone

    Args:
        removed, added: each in commit order.
    """
    gone, come = by_partition(removed), by_partition(added)
    return frozenset[str]().union(*(_same_rows(gone[values], come[values]) for values in gone.keys() & come.keys()))


def by_partition(files: Iterable[StagedFile]) -> dict[PartitionValues, list[StagedFile]]:
    """Return the files of each partition, in their order; of an unpartitioned table all under ()."""
    found: dict[PartitionValues, list[StagedFile]] = {}
    for file in files:
        found.setdefault(file.partition, []).append(file)
    return found


def _same_rows(removed: Sequence[StagedFile], added: Sequence[StagedFile]) -> set[str]:
    same, waiting = set[str](), list[str]()
    before, after = iter(removed), iter(added)
    rows = digests = 0  # removed ones less added ones
    while (file := next(before if rows <= 0 else after, None)) is not None:
        digest, sign = _digest(file), 1 if rows <= 0 else -1
        if digest is None:
            break
        rows, digests = rows + sign * file.rows, (digests + sign * digest) % _MODULUS
        waiting.append(file.key)
        if rows == digests == 0:
            same.update(waiting)
            waiting = []
    return same


def _digest(file: StagedFile) -> int | None:
    digest = file.rows_of or file.sha256
    return int(digest, 16) if digest else None


def _runs(files: Sequence[StagedFile]) -> Iterator[Run]:
    segments = [list(group) for small, group in groupby(files, _is_small) if small]
    grows = bool(files) and _is_small(files[-1])
    for number, segment in enumerate(segments, 1):
        last = grows and number == len(segments)
        for run in _growing(segment) if last else [tuple(segment)]:
            yield from _cut(run)


def _is_small(file: StagedFile) -> bool:
    """Return whether a file may be joined: one of ours, as it was staged, and not half full; no bucket."""
    is_ours = staged_by(file.key) is not None and bool(file.sha256)
    return is_ours and file.groups is None and file.size * 2 < WANTED_BYTES


def _growing(files: Sequence[StagedFile]) -> Iterator[Run]:
    """Yield runs that are worth joining, each as long as its largest file allows; of nested ones the inner one."""
    ends = (0, *accumulate(file.rows for file in files))
    taken: list[range] = []
    for run in sorted(_windows([file.rows for file in files]), key=len):
        largest = max(files[at].rows for at in run)
        if ends[run.stop] - ends[run.start] < GROWTH * largest or len(run) < 2:
            continue
        if all(run.stop <= other.start or other.stop <= run.start for other in taken):
            taken.append(run)
            yield tuple(files[run.start : run.stop])


def _windows(rows: Sequence[int]) -> set[range]:
    """Return for each place the longest stretch around it of which it is the largest."""
    left, right, waiting = [0] * len(rows), [len(rows)] * len(rows), list[int]()
    for at, count in enumerate(rows):
        while waiting and rows[waiting[-1]] < count:
            right[waiting.pop()] = at
        left[at] = left[waiting[-1]] if waiting and rows[waiting[-1]] == count else (waiting[-1] + 1 if waiting else 0)
        waiting.append(at)
    return {range(*ends) for ends in zip(left, right, strict=True)}


def _cut(run: Run) -> Iterator[Run]:
    """Yield the parts of a run that have about as many bytes as a file is to have; of a single file nothing.

    None has more files than an epoch joins: what a backfill leaves may be many thousands that are alike.
    """
    for start in range(0, len(run), MOST_FILES):
        parts = cut_by_bytes(run[start : start + MOST_FILES], WANTED_BYTES)
        yield from (part for part in parts if len(part) > 1)
