"""When a snapshot writes a delta, and when it replaces older runs, follows from four numbers."""

from __future__ import annotations

from enum import Enum

BASE_SHARE = 0.5
"""Once changed rows since the base exceed this share of its rows, a base is written: each row is rewritten about
1 / BASE_SHARE times per time it changes, so uploads stay proportional to changed keys."""

MAX_DELTAS = 8
"""More deltas than this on one base are merged into one; the base stays."""


class SnapshotWrite(Enum):
    """KEEP: no run. DELTA: the changes of this epoch. MERGED_DELTA: all changes since the base, replacing the deltas.
    BASE: all live rows, replacing every run."""

    KEEP = "keep"
    DELTA = "delta"
    MERGED_DELTA = "merged_delta"
    BASE = "base"


def choose_write(*, base_rows: int, delta_rows: int, delta_runs: int, changed_rows: int) -> SnapshotWrite:
    """Return what a snapshot writes.

    Args:
        base_rows: rows of the base runs; 0 without one.
        delta_rows: rows, each key once, of the deltas since then.
        delta_runs: how many they are.
        changed_rows: rows and tombstones of this epoch.
    """
    if changed_rows == 0:
        return SnapshotWrite.KEEP
    if delta_rows + changed_rows > base_rows * BASE_SHARE:
        return SnapshotWrite.BASE
    if delta_runs >= MAX_DELTAS:
        return SnapshotWrite.MERGED_DELTA
    return SnapshotWrite.DELTA
