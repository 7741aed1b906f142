"""Limit how long a subtask processes before it leaves rows in flight (DESIGN 4.3).

A task's deadline is the earlier of two times: `aligned_timeout` after its start, and its share of the remaining
`epoch_budget`. The remaining budget is divided by the waves of tasks that have yet to run, in this level and the levels
downstream. Within a task, its operators share the remaining time evenly, in their order.

A chunk takes at most about a tenth of the remaining time, so the deadline is met to that precision. A buffer is always
processed whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from milepost.epoch import EpochAlignment

Clock = Callable[[], int]
"""Wall clock, ms since the epoch: the budget began in another process."""

RESERVED_PERCENT = 20
"""Share of the epoch's budget for the work after the last level: uploads, quality gate, commit."""

_PIECES = 10
_GROWTH = 4
_SHORTEST_MS = 1


@dataclass(frozen=True, slots=True)
class LevelShare:
    """How the tasks of one level share the epoch's time with those of other levels.

    Attributes:
        parallelism: number of tasks of every level.
        slots: number of tasks that run in parallel.
        levels: number of levels yet to run, including this one.
    """

    parallelism: int
    slots: int
    levels: int

    def waves(self, subtask: int) -> int:
        """Return the waves of tasks yet to run, including the subtask's own. Spark starts tasks in order.

        With 4 tasks, 2 slots and 2 levels, each level has 2 waves. Subtasks 0 and 1 have 4 waves to go, 2 and 3 have 3.
        """
        per_level = -(-self.parallelism // self.slots)
        return per_level * self.levels - subtask // self.slots


def task_deadline_ms(alignment: EpochAlignment, now_ms: int, waves: int) -> int | None:
    """Return when a task that starts now must stop processing; None: never. It may be in the past.

    Budget 10,000 ms, of which 20% is reserved; started at 0, now 2,000, 3 waves to go::

        usable 8,000    remaining 8,000 - 2,000 = 6,000    deadline 2,000 + 6,000 / 3 = 4,000
    """
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
    """Size the chunks of one operator by its measured rate.

    Args:
        deadline_ms: deadline of this operator; None: it processes all its input as one chunk.
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
        """Return the time, capped before the deadline until a buffer is processed: every epoch makes progress."""
        now_ms = self.clock()
        if self.deadline_ms is None or self._processed_bytes:
            return now_ms
        return min(now_ms, max(self.deadline_ms - 1, self._started_ms))

    def limit_bytes(self) -> int | None:
        """Return how many bytes to take next; None: everything, 0: one buffer.

        After 100 bytes in 10 ms, with 1,000 ms left, a tenth of the time suffices for 1,000 bytes. A chunk is at most 4
        times the largest one so far, so the next one has 400 bytes.
        """
        if self.deadline_ms is None:
            return None
        remaining_ms = max(0, self.deadline_ms - self.clock())
        fitting = self._processed_bytes * remaining_ms // (max(self._spent_ms, _SHORTEST_MS) * _PIECES)
        return min(fitting, self._largest * _GROWTH)

    def record_chunk(self, size: int, began_ms: int) -> None:
        """Record a processed chunk that was started at `began_ms`."""
        self._processed_bytes += size
        self._spent_ms += self.clock() - began_ms
        self._largest = max(self._largest, size)
