"""Compact small files by joining a few at a time, so that rows are rewritten rarely.

Every epoch adds files, however few rows it has. Adjacent files of a partition are joined once their total is `GROWTH`
times the rows of the largest one. Each join moves a row to a file that is `GROWTH` times as large, so the number of
times that a row is rewritten is logarithmic in the rows of a full file. With a growth of 4, and epochs of one file
with one row:

    1 1 1 1            -> 4
    4 1 1 1 1          -> 4 4
    4 4 4 4            -> 16          at most 3 of each size remain

A file of half the target size is never joined again. Small files between two such files get no further neighbors, so
they are joined immediately.

Change files of an upsert table (`compaction.py`) are joined in the same way. Their joined file has the last row of each
key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby

import pyarrow as pa

from milepost.errors import ProtocolViolation
from milepost.sinks.parquet_files.file_cuts import cut_by_bytes
from milepost.tables.records import DIGEST_MODULUS, JoinedFile, PartitionValues, StagedFile, row_digest, staged_by

GROWTH = 8
TARGET_BYTES = 64 << 20
"""Target size of a joined file, and the most that a subtask joins in one epoch."""

MAX_JOINED_FILES = 4096
"""Maximum number of small files that one epoch joins. The next epoch continues."""

Run = tuple[StagedFile, ...]
"""Adjacent files to join, in the table's order."""


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """The small files that one epoch joins.

    Attributes:
        runs: fewest rows first. schema: columns of the table.
    """

    runs: tuple[Run, ...]
    schema: pa.Schema

    def share(self, subtask: int, subtasks: int) -> JoinPlan:
        """Return the share of one subtask: every n-th run, up to `TARGET_BYTES` in total."""
        own = self.runs[subtask::subtasks]
        sizes = accumulate(sum(file.size for file in run) for run in own)
        return replace(self, runs=tuple(run for run, size in zip(own, sizes, strict=True) if size <= TARGET_BYTES))


def plan_joins(files: Iterable[StagedFile]) -> tuple[Run, ...]:
    """Return the runs of files that an epoch joins. A file is in at most one run.

    Args:
        files: of the table, in commit order.
    """
    runs = sorted(
        chain.from_iterable(map(_runs, by_partition(files).values())), key=lambda run: sum(file.rows for file in run)
    )
    counts = accumulate(len(run) for run in runs)
    return tuple(run for run, count in zip(runs, counts, strict=True) if count <= MAX_JOINED_FILES)


def valid_joins(joined: Sequence[JoinedFile], current: Iterable[StagedFile], *, latest: bool) -> tuple[JoinedFile, ...]:
    """Return the joined files with all their inputs still in the table. Another engine may have compacted some.

    Args:
        current: files of the table now. latest: a joined file has the last row of each key, not every row.
    Raises: ProtocolViolation: the row count of a joined file does not match its inputs.
    """
    rows = {file.key: file.rows for file in current}
    valid = tuple(join for join in joined if rows.keys() >= set(join.of))
    for join in valid:
        expected = sum(rows[key] for key in join.of)
        if join.file.rows > expected or (join.file.rows < expected and not latest):
            raise ProtocolViolation(
                f"joined file {join.file.key} has {join.file.rows} rows, its inputs have {expected}. "
                "Nothing was published."
            )
    return valid


def same_rows(removed: Sequence[StagedFile], added: Sequence[StagedFile]) -> frozenset[str]:
    """Return the keys of the removed and added files that hold the same rows.

        removed a b c d, added j (joins a b c), k   ->  a b c j
        removed j, added a b                        ->  none: the rows of c are missing

    Args:
        removed, added: each in commit order.
    """
    before, after = by_partition(removed), by_partition(added)
    common = before.keys() & after.keys()
    return frozenset[str]().union(*(_same_rows(before[values], after[values]) for values in common))


def by_partition(files: Iterable[StagedFile]) -> dict[PartitionValues, list[StagedFile]]:
    """Return the files of each partition, in their order; those of an unpartitioned table under ()."""
    partitions: dict[PartitionValues, list[StagedFile]] = {}
    for file in files:
        partitions.setdefault(file.partition, []).append(file)
    return partitions


def _same_rows(removed: Sequence[StagedFile], added: Sequence[StagedFile]) -> set[str]:
    # Walk both sides in step, like a merge. Whenever the row counts and the digest sums of the consumed files balance,
    # the consumed files hold the same rows: a(1) b(2) c(1) on one side, j(4) on the other.
    same, pending = set[str](), list[str]()
    before, after = iter(removed), iter(added)
    rows = digests = 0  # removed minus added
    while (file := next(before if rows <= 0 else after, None)) is not None:
        digest, sign = row_digest(file), 1 if rows <= 0 else -1
        if digest is None:
            break
        rows, digests = rows + sign * file.rows, (digests + sign * digest) % DIGEST_MODULUS
        pending.append(file.key)
        if rows == digests == 0:
            same.update(pending)
            pending = []
    return same


def _runs(files: Sequence[StagedFile]) -> Iterator[Run]:
    segments = [list(group) for small, group in groupby(files, _is_small) if small]
    grows = bool(files) and _is_small(files[-1])
    for number, segment in enumerate(segments, 1):
        last = grows and number == len(segments)
        for run in _growth_runs(segment) if last else [tuple(segment)]:
            yield from _cut_run(run)


def _is_small(file: StagedFile) -> bool:
    """Return whether a file may be joined: staged by the job, not a bucket, and below half the target size."""
    is_ours = staged_by(file.key) is not None and bool(file.sha256)
    return is_ours and file.groups is None and file.size * 2 < TARGET_BYTES


def _growth_runs(files: Sequence[StagedFile]) -> Iterator[Run]:
    """Yield the runs worth joining, shortest first. A longer run that overlaps one of them is dropped.

    With a growth of 4 and files of these rows::

        5 1 1 1 1 9     ->  1 1 1 1       the largest is 1, the total is 4
        5 1 1 1 9       ->  none          3 < 4 * 1, 8 < 4 * 5, and 17 < 4 * 9
    """
    ends = (0, *accumulate(file.rows for file in files))
    taken: list[range] = []
    for run in sorted(_dominated_ranges([file.rows for file in files]), key=len):
        largest = max(files[at].rows for at in run)
        if ends[run.stop] - ends[run.start] < GROWTH * largest or len(run) < 2:
            continue
        if all(run.stop <= other.start or other.stop <= run.start for other in taken):
            taken.append(run)
            yield tuple(files[run.start : run.stop])


def _dominated_ranges(rows: Sequence[int]) -> set[range]:
    """Return for each index the longest range around it in which no value is larger.

    A monotonic stack finds all of them in linear time: [5, 1, 1, 9] -> 0..3, 1..3, 0..4 (half-open).
    """
    left, right, stack = [0] * len(rows), [len(rows)] * len(rows), list[int]()
    for at, count in enumerate(rows):
        while stack and rows[stack[-1]] < count:
            right[stack.pop()] = at
        left[at] = left[stack[-1]] if stack and rows[stack[-1]] == count else (stack[-1] + 1 if stack else 0)
        stack.append(at)
    return {range(*ends) for ends in zip(left, right, strict=True)}


def _cut_run(run: Run) -> Iterator[Run]:
    """Cut a run into parts of about the target size. A part of a single file is omitted.

    No part has more than `MAX_JOINED_FILES` files. A backfill may create many thousands of files of equal size.
    """
    for start in range(0, len(run), MAX_JOINED_FILES):
        parts = cut_by_bytes(run[start : start + MAX_JOINED_FILES], TARGET_BYTES)
        yield from (part for part in parts if len(part) > 1)
