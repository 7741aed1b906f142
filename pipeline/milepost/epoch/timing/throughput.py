"""The throughput estimate says how much input the next epoch can take within its budget.

The slowest subtask of each level decides, because an epoch waits for all of them, level after level. Only the plan is
scaled here: what does not get done in time is left in flight all the same (DESIGN 4.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.codec import Amount

PROCESSING_SHARE = 0.7
"""Part of `epoch_budget` that processing may take; the rest is Spark's start, the snapshot, the gate and the commit."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one subtask of one level did in an epoch.

    Attributes:
        level: 1 and up.
        received_bytes: of buffers that arrived in this epoch. processed_bytes: of all that it processed.
        left_bytes: left in flight. process_ms: spent processing.
    """

    level: int
    received_bytes: int
    processed_bytes: int
    left_bytes: int
    process_ms: int


@dataclass(frozen=True, slots=True)
class ThroughputEstimate:
    """What is known of the job's speed at a checkpoint.

    Attributes:
        ms_per_source_byte: processing time that one byte of source objects leads to, slowest subtasks summed over the
            levels; None until an epoch that read something was measured.
        in_flight_ms: processing time of what is in flight.
    """

    ms_per_source_byte: Amount | None = None
    in_flight_ms: Amount = 0.0

    def source_bytes_within(self, budget_ms: int) -> int | None:
        """Return how many bytes of new source objects fit beside what is in flight; None: not known yet. May be 0."""
        if self.ms_per_source_byte is None:
            return None
        free_ms = budget_ms * PROCESSING_SHARE - self.in_flight_ms
        return max(0, int(free_ms / self.ms_per_source_byte))

    def check(self) -> str | None:
        """Return what is wrong with values that fit one by one; None when they belong together."""
        return "ms_per_source_byte is 0, expected more or null" if self.ms_per_source_byte == 0 else None


def measure(work: Sequence[Work], source_bytes: int, before: ThroughputEstimate) -> ThroughputEstimate:
    """Return the estimate after an epoch.

    Args:
        work: of every subtask of every stateful level.
        source_bytes: size of the objects that the epoch read.
        before: of the checkpoint that it continued: kept for what this epoch did not show.
    """
    arrived_ms = left_ms = 0.0
    for level in {item.level for item in work}:
        subtasks = [item for item in work if item.level == level]
        processed, spent_ms = (
            sum(getattr(item, name) for item in subtasks) for name in ("processed_bytes", "process_ms")
        )
        if not processed:
            continue
        # A subtask that processed nothing shows no speed of its own.
        usual = max(spent_ms, 1) / processed
        speeds = [max(i.process_ms, 1) / i.processed_bytes if i.processed_bytes else usual for i in subtasks]
        arrived_ms += max(i.received_bytes * speed for i, speed in zip(subtasks, speeds, strict=True))
        left_ms += max(i.left_bytes * speed for i, speed in zip(subtasks, speeds, strict=True))
    per_byte = arrived_ms / source_bytes if source_bytes and arrived_ms else before.ms_per_source_byte
    return ThroughputEstimate(per_byte, left_ms)
