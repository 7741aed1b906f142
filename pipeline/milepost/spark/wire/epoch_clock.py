"""The epoch clock bounds how long a subtask processes before it leaves rows in flight (DESIGN 4.3).

A task ends at the earlier of `aligned_timeout` after its start, and its share of what is left of `epoch_budget`: the
rest is divided by the waves of tasks that are still to run, in this level and the levels behind it. Within a task the
operators share what is left fairly, in their order. A chunk takes at most about a tenth of what is left, so the end is
met to that precision; a buffer is processed whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from milepost.epoch import EpochAlignment

Clock = Callable[[], int]
"""Wall clock, ms since the epoch: the budget began in another process."""

RESERVED_PERCENT = 20
"""Of the epoch's budget: for what follows the last level (uploads, quality gate, commit)."""

_PIECES = 10
_GROWTH = 4
_SHORTEST_MS = 1


@dataclass(frozen=True, slots=True)
class LevelShare:
    """What one level's tasks have to leave for others.

    Attributes:
        parallelism: tasks of every level. slots: how many run at once. levels: this one and those behind it.
    """

    parallelism: int
    slots: int
    levels: int

    def waves(self, subtask: int) -> int:
        """Rounds of tasks that are still to run, the subtask's own included: Spark starts tasks in order."""
        per_level = -(-self.parallelism // self.slots)
        return per_level * self.levels - subtask // self.slots


def task_deadline_ms(alignment: EpochAlignment, now_ms: int, waves: int) -> int | None:
    """When a task that starts now must stop processing; None = never. May be past already."""
    if not alignment.may_leave_rows:
        return None
    ends = []
    if alignment.aligned_timeout_ms is not None:
        ends.append(now_ms + alignment.aligned_timeout_ms)
    if alignment.epoch_budget_ms is not None:
        usable_ms = alignment.epoch_budget_ms * (100 - RESERVED_PERCENT) // 100
        remaining_ms = max(0, alignment.started_ms + usable_ms - now_ms)
        ends.append(now_ms + remaining_ms // waves)
    return min(ends)


class Pacer:
    """Sizes the chunks of one operator by the rate that it is measured at.

    Args:
        deadline_ms: of this operator; None = it takes everything at once.
    """

    def __init__(self, deadline_ms: int | None, clock: Clock) -> None:
        self.deadline_ms = deadline_ms
        self.clock = clock
        self._started_ms = clock()
        self._processed_bytes = 0
        self._spent_ms = 0
        self._largest = 0

    @property
    def processed_bytes(self) -> int:
        return self._processed_bytes

    def now_ms(self) -> int:
        """Return the time; before the deadline until a buffer is processed: every epoch makes progress."""
        now_ms = self.clock()
        if self.deadline_ms is None or self._processed_bytes:
            return now_ms
        return min(now_ms, max(self.deadline_ms - 1, self._started_ms))

    def limit_bytes(self) -> int | None:
        """Return how many bytes to take next; None = everything, 0 = one buffer."""
        if self.deadline_ms is None:
            return None
        remaining_ms = max(0, self.deadline_ms - self.clock())
        fitting = self._processed_bytes * remaining_ms // (max(self._spent_ms, _SHORTEST_MS) * _PIECES)
        return min(fitting, self._largest * _GROWTH)

    def record_chunk(self, size: int, began_ms: int) -> None:
        """A chunk was processed, begun at `began_ms`."""
        self._processed_bytes += size
        self._spent_ms += self.clock() - began_ms
        self._largest = max(self._largest, size)
