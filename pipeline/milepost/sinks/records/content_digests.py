"""A number tells what files of a table of the latest rows show: for a format that keeps rows, not files.

A file of changes has a number of its own, by its key, which no other file of its table ever has. Files that come in the
place of others have the sum of those, all together::

    c1 c2 c3    joined      j  = c1 + c2 + c3
                compacted   a is its own, b = c1 + c2 + c3 - a

So the first files of two tables whose numbers have the same sum show the same rows, and nothing of them has to be read.
Nothing less has that sum, as little as two files have the same digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

from milepost.sinks.records.committables import StagedFile

_MODULUS = 1 << 256


def combined_digest(files: Iterable[StagedFile]) -> str:
    """Return the number of a file that has the latest rows of others, as it is recorded (`StagedFile.rows_of`)."""
    return f"{sum(map(_number, files)) % _MODULUS:064x}"


def with_replacement_digests(made: Sequence[StagedFile], replaced: Iterable[StagedFile]) -> tuple[StagedFile, ...]:
    """Return files with the numbers that they have together in the place of others."""
    if not made:
        return ()
    *others, last = made
    rest = sum(map(_number, replaced)) - sum(map(_number, others))
    return (*others, replace(last, rows_of=f"{rest % _MODULUS:064x}"))


def common_prefix(before: Sequence[StagedFile], after: Sequence[StagedFile]) -> tuple[int, int]:
    """Return how many of the first files of each of two tables show the same rows; as many as do."""
    known = {number: at for at, number in enumerate(_sums(before))}
    sums = _sums(after)
    return next((known[sums[at]], at) for at in range(len(after), -1, -1) if sums[at] in known)


def _sums(files: Sequence[StagedFile]) -> list[int]:
    return list(accumulate(map(_number, files), lambda one, other: (one + other) % _MODULUS, initial=0))


def _number(file: StagedFile) -> int:
    return int(file.rows_of or hashlib.sha256(file.key.encode()).hexdigest(), 16)
