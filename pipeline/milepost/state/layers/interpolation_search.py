"""Interpolation search in sorted hashes, which are distributed evenly.

The upper 32 bits of n ascending hashes divide their range into n buckets of equal width. A hash can only be in its
bucket, a bucket has one row on average, and the first row of bucket b is near row b. The distance between the two is
the bucket's drift: a few hundred rows among a million, so two bytes are enough.

Four hashes between 10 and F0 have four buckets. Rows 0 to 2 are in bucket 0, and row 3 is in bucket 3. Buckets 1 and 2
are empty and begin at row 3: their drifts are 2 and 1. The search for 21 starts at row 0 and finds it in row 2.

    >>> hashes = np.array([0x10, 0x20, 0x21, 0xF0], dtype=np.uint64) << _32
    >>> _buckets(hashes, hashes).tolist(), drifts_of(hashes).tolist()
    ([0, 0, 0, 3], [0, 2, 1, 0])
    >>> query, rows = first_equal(hashes, drifts_of(hashes), np.array([0x30, 0x21], dtype=np.uint64) << _32)
    >>> query.tolist(), rows.tolist()
    ([1], [2])
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from milepost.state.layers.key_groups import Hashes, Ints

Drifts: TypeAlias = npt.NDArray[np.signedinteger[Any]]

_32 = np.uint64(32)
_ROWS_AT_ONCE = 1 << 17
_STEPS = 8
"""Number of rows of a bucket that are compared before binary search, because many hashes may share their upper bits."""
_CROWDED = 3
"""If fewer than 1 in N buckets have rows, binary search is as fast. With even hashes, 5 in 8 buckets have rows."""


def drifts_of(hashes: Hashes) -> Drifts | None:
    """Return, per bucket, the number of rows before it minus the bucket's number, in 16 bits if all values fit.

    Args:
        hashes: ascending; fewer than 2^31.
    Returns: None if the hashes are concentrated in few buckets, as with many windows of one key.
    """
    before = np.zeros(len(hashes) + 1, dtype=np.int32)
    for start in range(0, len(hashes), _ROWS_AT_ONCE):
        buckets = _buckets(hashes, hashes[start : start + _ROWS_AT_ONCE])
        least = int(buckets[0])
        counted = np.bincount(buckets - least)
        before[least + 1 : least + 1 + len(counted)] += counted.astype(np.int32)
    if np.count_nonzero(before) * _CROWDED < len(hashes):
        return None
    np.cumsum(before, out=before)
    drifts = before[:-1]
    drifts -= np.arange(len(drifts), dtype=np.int32)
    bounds = np.iinfo(np.int16)
    fit = not len(drifts) or (drifts.min() >= bounds.min and drifts.max() <= bounds.max)
    return drifts.astype(np.int16) if fit else drifts


def first_equal(hashes: Hashes, drifts: Drifts, wanted: Hashes) -> tuple[Ints, Ints]:
    """Find hashes: return (index into wanted, index of the first equal hash) of each hit.

    Args:
        hashes: ascending, at least one. drifts: `drifts_of` them.
    """
    last = len(hashes) - 1
    rows = np.minimum(_buckets(hashes, wanted), last)
    rows += drifts[rows]
    np.minimum(rows, last, out=rows)  # the last buckets may be empty, and begin after the last row
    at = hashes[rows]
    equal = at == wanted
    before = np.flatnonzero(at < wanted)
    for step in range(_STEPS + 1):
        following = rows[before] + 1
        if following.size and int(following.max()) > last:
            inside = following <= last
            before, following = before[inside], following[inside]
        if not following.size:
            break
        if step == _STEPS:
            following = np.minimum(np.searchsorted(hashes, wanted[before]), last)
        rows[before] = following
        at, sought = hashes[following], wanted[before]
        equal[before] = at == sought
        before = before[at < sought]
    query = np.flatnonzero(equal)
    return query, rows[query]


def _buckets(hashes: Hashes, some: Hashes) -> Ints:
    """Return the bucket of each hash. For a hash outside the range it is an arbitrary number >= 0."""
    least, most = int(hashes[0]) >> 32, int(hashes[-1]) >> 32
    per_value = np.uint64((len(hashes) << 32) // (most - least + 1))
    buckets: Ints = ((((some >> _32) - np.uint64(least)) * per_value) >> _32).view(np.int64)
    return buckets
