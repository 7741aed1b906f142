"""Estimate how much input the next epoch can process within its budget.

The slowest subtask of each level decides, because an epoch waits for all of them, level after level. The estimate only
scales the plan. Rows that are not processed in time stay in flight anyway (DESIGN 4.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.codec import Amount

PROCESSING_SHARE = 0.7
"""Part of `epoch_budget` for processing. The rest is for Spark's start, the snapshot, the gate and the commit."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one subtask of one level in an epoch.

    Attributes:
        level: from 1.
        received_bytes: size of the buffers that arrived in this epoch.
        processed_bytes: size of all buffers that it processed.
        left_bytes: size of the buffers that it left in flight.
        process_ms: processing time.
    """

    level: int
    received_bytes: int
    processed_bytes: int
    left_bytes: int
    process_ms: int


@dataclass(frozen=True, slots=True)
class ThroughputEstimate:
    """Estimated speed of the job at a checkpoint.

    Attributes:
        ms_per_source_byte: processing time per byte of source objects, slowest subtasks summed over the levels. None
            until an epoch that read input was measured.
        in_flight_ms: processing time of the rows in flight.
    """

    ms_per_source_byte: Amount | None = None
    in_flight_ms: Amount = 0.0

    def source_bytes_within(self, budget_ms: int) -> int | None:
        """Return how many bytes of new source objects fit in addition to the rows in flight. May be 0; None: unknown.

        A budget of 60,000 ms leaves 42,000 ms for processing. With 2,000 ms of rows in flight and 0.01 ms per byte,
        4,000,000 bytes fit.
        """
        if self.ms_per_source_byte is None:
            return None
        free_ms = budget_ms * PROCESSING_SHARE - self.in_flight_ms
        return max(0, int(free_ms / self.ms_per_source_byte))

    def check(self) -> str | None:
        """Return the inconsistency between the fields, or None if they are consistent."""
        return "ms_per_source_byte is 0, expected more or null" if self.ms_per_source_byte == 0 else None


def measure(work: Sequence[Work], source_bytes: int, before: ThroughputEstimate) -> ThroughputEstimate:
    """Return the estimate after an epoch.

    Args:
        work: work of every subtask of every stateful level.
        source_bytes: size of the objects that the epoch read.
        before: estimate of the base checkpoint, which supplies what this epoch did not measure.
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
