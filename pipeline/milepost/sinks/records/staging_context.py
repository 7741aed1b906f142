"""The context in which a subtask stages files: checkpoint, fencing token, subtask, memory budget."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class StagingContext:
    """The checkpoint, fencing token and subtask that stage files.

    Attributes:
        held_bytes: bytes of rows to hold in memory. The rows of one part, or of part 0 in an upsert table, are held
            regardless.
    """

    checkpoint_id: int
    token: int
    subtask: int
    held_bytes: int

    def with_half_budget(self) -> StagingContext:
        """Return the context for each of two stagings that run concurrently."""
        return replace(self, held_bytes=self.held_bytes // 2)
