"""A table of the latest rows in files of its own kind: buckets, each of which has every key of some key groups.

No engine merges by key while it reads, so a changed bucket is written again as a whole (copy-on-write), by the subtask
that owns its keys. What a subtask of key groups 0 to 63 does, in a table of four buckets of 32:

    bucket a 0..31, no changed key      it stays
    bucket b 32..63, some changed keys  its rows and the changes -> a new bucket 32..63
    bucket x 48..79, of an earlier cut  its rows of 48..63 count as changes; its other owner takes the rest; it goes
    a file without key groups           so does what an engine put together, or a fork staged
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milepost.sinks.records.committables import StagedFile

Ints = npt.NDArray[Any]

ROWS_PER_BUCKET = 8192
MAX_BUCKETS = 64


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """How an epoch writes a table of the latest rows.

    Attributes:
        files: what the table consists of, in commit order. schema: its columns; None: there is no table yet.
        count: buckets of the whole table; None: by its rows.
        rewrites: False: only the changes are staged (an epoch of a fork that others follow).
        keeps_changes: whether the changes are staged as well, where buckets are written (for the quality gate).
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
        groups: its key groups. of: how many there are in all.
        key_groups: returns those of rows, by key columns and that number.
    """

    groups: range
    of: int
    key_groups: Callable[[pa.Table, Sequence[str], int], Ints]


def is_within(inner: range | None, outer: range) -> bool:
    """Return whether a file covers key groups of just these."""
    return inner is not None and outer.start <= inner.start and inner.stop <= outer.stop


def overlaps(one: range, other: range) -> bool:
    """Return whether two ranges have a key group in common."""
    return one.start < other.stop and other.start < one.stop


def bucket_count(rows: int, owned: OwnedKeys) -> int:
    """Return how many buckets the whole table gets by the rows of one subtask: a power of two, so that cuts stay."""
    wanted = rows * owned.of // max(1, len(owned.groups)) // ROWS_PER_BUCKET
    return min(MAX_BUCKETS, 1 << max(0, wanted.bit_length() - 1))


def buckets_of(owned: OwnedKeys, count: int) -> tuple[range, ...]:
    """Return the buckets of one subtask, in order: those of the table, cut where its key groups end."""
    cuts = {index * owned.of // count for index in range(1, count)}
    inside = {cut for cut in cuts if cut in owned.groups}
    return tuple(
        range(start, stop) for start, stop in pairwise(sorted(inside | {owned.groups.start, owned.groups.stop}))
    )


def dirty_buckets(buckets: Sequence[range], changed: Iterable[int], files: Iterable[StagedFile]) -> list[int]:
    """Return the indices of buckets to write: the changed ones, and all that share a file with one of them."""
    dirty = set(changed)
    covered = [{at for at, one in enumerate(buckets) if file.groups and overlaps(one, file.groups)} for file in files]
    while grown := set[int]().union(*(each for each in covered if each & dirty)) - dirty:
        dirty |= grown
    return sorted(dirty)


def split_by_bucket(rows: pa.Table, groups: Ints, buckets: Sequence[range]) -> list[pa.Table]:
    """Return the rows of each bucket, in their order; `groups` are their key groups."""
    of_group = np.zeros(max((one.stop for one in buckets), default=0), dtype=np.uint16)  # a radix sort takes these
    for index, one in enumerate(buckets):
        of_group[one.start : one.stop] = index
    at = of_group[groups]
    order = np.argsort(at, kind="stable")
    ends = np.searchsorted(at[order], np.arange(len(buckets) + 1))
    sorted_rows = rows.take(pa.array(order))
    return [sorted_rows.slice(start, stop - start) for start, stop in pairwise(ends.tolist())]
