"""State handles: a subtask acknowledges them, and a restore finds and verifies state by them.

A `StateHandle` belongs to one (operator, subtask) and lists immutable runs, oldest first. The next checkpoint refers to
unchanged runs. The types of the fields define the stored format, and decoding validates every value.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from milepost.codec import Count, Sha256, Text
from milepost.protocol.records import OwnKey


class RunKind(Enum):
    """BASE: every row that was live. DELTA: only the keys that changed, deletes included."""

    BASE = "base"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class RunHandle:
    """Reference to one stored run: a Parquet file, see `runs`.

    Attributes:
        key: object key, relative to the job's root.
        size: bytes. sha256: lower-case hex of the content.
        rows: number of rows, including tombstones.
        kind: base or delta.
        key_groups: half-open range that the file covers.
        valid: the part of `key_groups` for which this run is valid. After a rescale, a newer base may have replaced it
            for the other key groups.
        offsets: offset of the first row of each key group, in the order of the key hash, followed by `rows`.
    """

    key: OwnKey
    size: Count
    sha256: Sha256
    rows: Count
    kind: RunKind
    key_groups: range
    valid: range
    offsets: tuple[int, ...]

    def check(self) -> str | None:
        """Return why the values contradict each other; None if they are consistent."""
        if self.valid.start < self.key_groups.start or self.valid.stop > self.key_groups.stop:
            return f"{self.key} is valid for {self.valid}, which is not within its {self.key_groups}"
        offsets = self.offsets
        bounded = len(offsets) == len(self.key_groups) + 1 and offsets[0] == 0 and offsets[-1] == self.rows
        if not bounded or list(offsets) != sorted(offsets):
            return f"the offsets of {self.key} do not cover {self.rows} rows in {len(self.key_groups)} key groups"
        return None


@dataclass(frozen=True, slots=True)
class StateHandle:
    """The state of one operator in one subtask at one checkpoint.

    Attributes:
        uid: operator.
        key_groups: half-open range that this subtask owns. After a rescale its runs may cover more.
        max_parallelism: number of key groups of the job.
        runs: oldest first; a later run wins over an earlier one.
        timers: (key group, earliest pending timer in us), ascending, without groups that have none.
        live_rows: number of live rows at this checkpoint.
    """

    uid: Text
    key_groups: range
    max_parallelism: Count
    runs: tuple[RunHandle, ...] = ()
    timers: tuple[tuple[int, int], ...] = ()
    live_rows: Count = 0

    @property
    def full_bytes(self) -> int:
        """Size in bytes of all files that this state refers to."""
        return sum({run.key: run.size for run in self.runs}.values())

    def check(self) -> str | None:
        """Return why the values contradict each other; None if they are consistent."""
        if self.key_groups.stop > self.max_parallelism:
            return f"its key groups end at {self.key_groups.stop}, expected at most {self.max_parallelism}"
        outside = [timer for timer in self.timers if timer[0] not in self.key_groups]
        return f"timer {outside[0]} is outside its key groups" if outside else None
