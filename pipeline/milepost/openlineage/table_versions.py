"""Table versions name what tables show: by their format's own name where there is one, else by the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableVersions:
    """What the tables of a job show.

    Attributes:
        timeline: the live one. of_format: by sink, as every reader of its format names it; without an entry: it has no
            such name, or another commit has come since.
    """

    timeline: str
    of_format: Mapping[str, str]

    def of(self, sink: str, checkpoint_id: int) -> str:
        """Return the version of one table, which shows this checkpoint."""
        return self.of_format.get(sink) or f"{self.timeline}/{checkpoint_id}"
