"""The bucket layout of an upsert table: each file has every key of a range of key groups.

Engines do not merge by key on read, so a changed bucket is rewritten as a whole (copy-on-write) by the subtask that
owns its keys. This is what the subtask of key groups 0..63 does, in a table of four buckets of 32:

    bucket a 0..31, no changed key           unchanged
    bucket b 32..63, some changed keys       its rows and the changes -> a new bucket 32..63
    bucket x 48..79, of an earlier layout    its rows of 48..63 count as changes; the owner of 64..79 takes the others;
                                             x is removed
    a file without key groups                likewise: an engine compacted it, or a fork staged it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milepost.tables.records import StagedFile

Ints = npt.NDArray[Any]

ROWS_PER_BUCKET = 8192
MAX_BUCKETS = 64


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """How an epoch writes an upsert table.

    Attributes:
        files: the table's files, in commit order. schema: its columns; None if there is no table yet.
        count: number of buckets of the whole table; None to derive it from the number of rows.
        rewrites: False to stage only the changes (an epoch of a fork that is not the last).
        keeps_changes: stage the changes in addition to the buckets (for the quality gate).
    """

    files: tuple[StagedFile, ...]
    schema: pa.Schema | None
    count: int | None
    rewrites: bool
    keeps_changes: bool


@dataclass(frozen=True, slots=True)
class OwnedKeys:
    """The keys that one subtask owns.

    Attributes:
        groups: its key groups. of: total number of key groups.
        key_groups: function from rows, key columns and that total to the key group of each row.
    """

    groups: range
    of: int
    key_groups: Callable[[pa.Table, Sequence[str], int], Ints]


def is_within(inner: range | None, outer: range) -> bool:
    """Return whether a file covers only key groups of `outer`."""
    return inner is not None and outer.start <= inner.start and inner.stop <= outer.stop


def overlaps(one: range, other: range) -> bool:
    """Return whether two ranges have a key group in common."""
    return one.start < other.stop and other.start < one.stop


def bucket_count(rows: int, owned: OwnedKeys) -> int:
    """Return the number of buckets of the whole table, estimated from the rows of one subtask.

    It is a power of two, so a growing table only ever splits buckets. For example, 20,000 rows in 32 of 128 key groups
    are about 80,000 in all: 9 buckets of `ROWS_PER_BUCKET`, rounded down to 8.
    """
    estimate = rows * owned.of // max(1, len(owned.groups)) // ROWS_PER_BUCKET
    return min(MAX_BUCKETS, 1 << max(0, estimate.bit_length() - 1))


def buckets_of(owned: OwnedKeys, count: int) -> tuple[range, ...]:
    """Return the buckets of one subtask, in order: those of the table, cut at the ends of its key groups.

    For key groups 40..99 of 128 and 4 buckets: 40..63, 64..95, 96..99.
    """
    cuts = {index * owned.of // count for index in range(1, count)}
    inside = {cut for cut in cuts if cut in owned.groups}
    return tuple(
        range(start, stop) for start, stop in pairwise(sorted(inside | {owned.groups.start, owned.groups.stop}))
    )


def dirty_buckets(buckets: Sequence[range], changed: Iterable[int], files: Iterable[StagedFile]) -> list[int]:
    """Return the indices of buckets to rewrite: the changed ones, and all that share a file with a rewritten one.

    After a split of the file 0..63 into the buckets 0..31 and 32..63, a change of one rewrites both.
    """
    dirty = set(changed)
    covered = [
        {index for index, bucket in enumerate(buckets) if file.groups and overlaps(bucket, file.groups)}
        for file in files
    ]
    while grown := set[int]().union(*(indices for indices in covered if indices & dirty)) - dirty:
        dirty |= grown
    return sorted(dirty)


def split_by_bucket(rows: pa.Table, groups: Ints, buckets: Sequence[range]) -> list[pa.Table]:
    """Return the rows of each bucket, in their order; `groups` are their key groups."""
    # uint16, because NumPy's stable sort is a radix sort for it
    bucket_of_group = np.zeros(max((bucket.stop for bucket in buckets), default=0), dtype=np.uint16)
    for index, bucket in enumerate(buckets):
        bucket_of_group[bucket.start : bucket.stop] = index
    indices = bucket_of_group[groups]
    order = np.argsort(indices, kind="stable")
    ends = np.searchsorted(indices[order], np.arange(len(buckets) + 1))
    sorted_rows = rows.take(pa.array(order))
    return [sorted_rows.slice(start, stop - start) for start, stop in pairwise(ends.tolist())]
