"""Version names of tables: the format's own version, or else the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableVersions:
    """Versions of a job's tables.

    Attributes:
        timeline: the live timeline.
        of_format: by sink, the version in its table format. A sink without an entry has no such version, or a later
            commit has replaced it.
    """

    timeline: str
    of_format: Mapping[str, str]

    def of(self, sink: str, checkpoint_id: int) -> str:
        """Return the version of a table that shows this checkpoint: "3871" by its format, or else "main/7"."""
        return self.of_format.get(sink) or f"{self.timeline}/{checkpoint_id}"
