"""A staging place says what a subtask's files are named by, and how much it holds."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class StagingPlace:
    """The checkpoint, the fencing token and the subtask that stage.

    Attributes:
        held_bytes: how many bytes of rows are held at once; of a part, or of those of part 0 in a table of the latest
            rows, all are.
    """

    checkpoint_id: int
    token: int
    subtask: int
    held_bytes: int

    def half(self) -> StagingPlace:
        """Return the place of each of two that stage beside each other."""
        return replace(self, held_bytes=self.held_bytes // 2)
