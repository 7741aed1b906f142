"""The compaction rule says when a snapshot writes a delta, and when it replaces older runs.

A delta costs what changed. A base costs all that is alive, so it waits until the deltas hold several times as much:
then it adds little to what each changed key costs, and a restore still reads no more than that many times the state.
Many small deltas are merged among themselves, those of a like size first, so that a row is rewritten about as often as
its run can still double.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

BASE_FACTOR = 4
"""Once the deltas hold more than so many times the rows of the base, a base is written: a changed row is written
1 + 1 / BASE_FACTOR times, and a restore reads at most 1 + BASE_FACTOR times the state."""

ALMOST_ALL = 0.8
"""From this share of the base's rows on, changes are written as a base: it costs hardly more, and ends the deltas."""

MAX_DELTAS = 32
"""As many deltas on one base are merged, at least the newest two."""

LIKE_SIZE = 2
"""A delta is merged with those after it while it has at most so many times their rows."""


class SnapshotWrite(Enum):
    """KEEP: no run. DELTA: the changes of this epoch. MERGED_DELTA: they and the newest deltas, which it replaces.
    BASE: all live rows, replacing every run."""

    KEEP = "keep"
    DELTA = "delta"
    MERGED_DELTA = "merged_delta"
    BASE = "base"


@dataclass(frozen=True, slots=True)
class Choice:
    """What a snapshot writes; `merged`: how many of the newest deltas a MERGED_DELTA replaces, else 0."""

    write: SnapshotWrite
    merged: int = 0


def choose_write(*, base_rows: int, delta_rows: Sequence[int], changed_rows: int) -> Choice:
    """Return what a snapshot writes.

    Args:
        base_rows: rows of the base runs that have not expired; 0 without one.
        delta_rows: rows of each delta since then, oldest first.
        changed_rows: rows and tombstones of this epoch.
    """
    if changed_rows == 0:
        return Choice(SnapshotWrite.KEEP)
    if changed_rows >= base_rows * ALMOST_ALL or sum(delta_rows) + changed_rows > base_rows * BASE_FACTOR:
        return Choice(SnapshotWrite.BASE)
    if len(delta_rows) < MAX_DELTAS:
        return Choice(SnapshotWrite.DELTA)
    merged, rows = 0, changed_rows
    for older in reversed(delta_rows):
        if merged >= 2 and older > rows * LIKE_SIZE:
            break
        merged, rows = merged + 1, rows + older
    return Choice(SnapshotWrite.BASE) if rows >= base_rows * ALMOST_ALL else Choice(SnapshotWrite.MERGED_DELTA, merged)
