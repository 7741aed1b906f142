"""Decide whether a snapshot writes a delta, merges deltas, or writes a new base.

A delta costs as much as the epoch changed. A base costs as much as all live rows. It is therefore written only when the
deltas hold several times as many rows as the base. Then it adds little to the cost of each changed key, and the amount
that a restore reads stays bounded. Small deltas are merged with others of a similar size, so a row is rewritten about
as often as its run can double in size:

    base 100, deltas 60 + 60, 70 changed       190 <= 400 and fewer than 32 deltas: write a delta
    base 100, deltas 200 + 180, 30 changed     410 > 400: write a base
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

BASE_FACTOR = 4
"""A base is written once the deltas hold more than this many times its rows. A changed row is then written
1 + 1 / BASE_FACTOR times, and a restore reads at most 1 + BASE_FACTOR times the state."""

ALMOST_ALL = 0.8
"""Changes of at least this share of the base's rows become a base: it costs little more, and replaces the deltas."""

MAX_DELTAS = 32
"""Deltas are merged once a base has this many: at least the newest two."""

LIKE_SIZE = 2
"""A delta joins the merge of the deltas after it while it has at most this many times their rows."""


class SnapshotWrite(Enum):
    """KEEP: no run. DELTA: the changes of this epoch. MERGED_DELTA: they and the newest deltas, which it replaces.
    BASE: all live rows, replacing every run."""

    KEEP = "keep"
    DELTA = "delta"
    MERGED_DELTA = "merged_delta"
    BASE = "base"


@dataclass(frozen=True, slots=True)
class Choice:
    """What a snapshot writes. `merged` is the number of newest deltas that a MERGED_DELTA replaces, else 0."""

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
