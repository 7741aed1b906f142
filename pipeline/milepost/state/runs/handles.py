"""State handles: what a subtask acknowledges, and what a restore needs to find and verify its state.

A `StateHandle` belongs to one (operator, subtask) and lists immutable runs, oldest first; a run that did not change is
carried by reference into the next checkpoint. The fields' types say what is stored, and reading it trusts
nothing.
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
        rows: tombstones included.
        kind: base or delta.
        key_groups: half-open range that the file covers.
        valid: part of it for which this reference counts. After a rescale a file may be current for some of its key
            groups and replaced by a newer base for others.
        offsets: row offset of each key group among its rows in the order of the key hash and, last, `rows`:
            len(key_groups) + 1 numbers.
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
        """Return what is wrong with values that fit one by one; None when they belong together."""
        if self.valid.start < self.key_groups.start or self.valid.stop > self.key_groups.stop:
            return f"{self.key} counts for {self.valid}, which is not within its {self.key_groups}"
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
        key_groups: half-open range this subtask owns; its runs may cover more (after a rescale).
        max_parallelism: number of key groups of the job.
        runs: oldest first; a later run wins over an earlier one.
        timers: (key group, earliest timer that has not fired yet, us), ascending, groups without one left out.
        live_rows: rows alive at this checkpoint.
    """

    uid: Text
    key_groups: range
    max_parallelism: Count
    runs: tuple[RunHandle, ...] = ()
    timers: tuple[tuple[int, int], ...] = ()
    live_rows: Count = 0

    @property
    def full_bytes(self) -> int:
        """Bytes of all files this state refers to."""
        return sum({run.key: run.size for run in self.runs}.values())

    def check(self) -> str | None:
        """Return what is wrong with values that fit one by one; None when they belong together."""
        if self.key_groups.stop > self.max_parallelism:
            return f"its key groups end at {self.key_groups.stop}, expected at most {self.max_parallelism}"
        outside = [timer for timer in self.timers if timer[0] not in self.key_groups]
        return f"timer {outside[0]} is outside its key groups" if outside else None
