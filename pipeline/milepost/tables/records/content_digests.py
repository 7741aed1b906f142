"""Digests of what files of an upsert table show, so that two file lists can be compared without reading them.

A change file has its own digest, from its key. Files that replace others have the sum of the replaced digests, modulo
2^256, in total::

    c1 c2 c3    joined      j  = c1 + c2 + c3
                compacted   a has its own digest, b = c1 + c2 + c3 - a

So if prefixes of two file lists have the same sum, they show the same rows. An equal sum of other files is as unlikely
as a hash collision::

    before  c1 c2 c3 c4      after  j c5       common prefix: (c1 c2 c3), (j)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

from milepost.tables.records.committables import StagedFile

_MODULUS = 1 << 256


def combined_digest(files: Iterable[StagedFile]) -> str:
    """Return the digest of a file that has the latest rows of these files (`StagedFile.rows_of`)."""
    return f"{sum(map(_digest, files)) % _MODULUS:064x}"


def with_replacement_digests(files: Sequence[StagedFile], replaced: Iterable[StagedFile]) -> tuple[StagedFile, ...]:
    """Return the files with digests that sum to those of the replaced files."""
    if not files:
        return ()
    *others, last = files
    rest = sum(map(_digest, replaced)) - sum(map(_digest, others))
    return (*others, replace(last, rows_of=f"{rest % _MODULUS:064x}"))


def common_prefix(before: Sequence[StagedFile], after: Sequence[StagedFile]) -> tuple[int, int]:
    """Return the lengths of the longest prefixes of two file lists that show the same rows."""
    lengths = {total: length for length, total in enumerate(_prefix_sums(before))}
    sums = _prefix_sums(after)
    return next((lengths[sums[length]], length) for length in range(len(after), -1, -1) if sums[length] in lengths)


def _prefix_sums(files: Sequence[StagedFile]) -> list[int]:
    return list(accumulate(map(_digest, files), lambda total, digest: (total + digest) % _MODULUS, initial=0))


def _digest(file: StagedFile) -> int:
    return int(file.rows_of or hashlib.sha256(file.key.encode()).hexdigest(), 16)
