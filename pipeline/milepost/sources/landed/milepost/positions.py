"""Positions in the published table of another job. Pure.

::

    {"mark": 97, "timeline": "main", "checkpoint": 42, "rows": 500, "digest": "5f70bf…"}
        the first 500 rows of the table as of mark 97 are read; checkpoint 42 has all of them
    {…, "rows": 200, "digest": "c00fa1…", "initial": 500}
        200 rows are read, of the 500 that the table had at the start of the log

Rows of a table are only appended to. A compaction joins files without changing their rows or their order. So a number
of rows is the same position before and after it, and the upstream job need not retain anything for its readers.

The digest is the sum of the digests of the files in which the rows were first written (`rows_digest`). It shows whether
the rows before that position are still those that were read. Mark and checkpoint say it where the position is inside
a joined file, of which only the sum of all its rows is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

from milepost.protocol.landed import Position
from milepost.protocol.records import CheckpointId, TimelineId


@dataclass(frozen=True, slots=True)
class TablePosition:
    """A position in the rows of a table.

    Attributes:
        mark: number of the table's mark when the rows were read; 0: nothing was published.
        timeline: that the mark shows. checkpoint: it has these rows, and the timeline continues it; 0: there are none.
        rows: how many are read, from the first one. digest: of these rows.
        initial: rows of the table at the start of the log, as long as not all of them are read; else 0.
    """

    mark: int
    timeline: str
    checkpoint: int
    rows: int
    digest: str
    initial: int = 0

    @property
    def continued(self) -> tuple[TimelineId, CheckpointId]:
        """The checkpoint, and a timeline that continues it. A table that continues it too begins with these rows."""
        return TimelineId(self.timeline), CheckpointId(self.checkpoint)

    def encode(self) -> Position:
        """Return the position that is stored in the log."""
        position = {
            "mark": self.mark,
            "timeline": self.timeline,
            "checkpoint": self.checkpoint,
            "rows": self.rows,
            "digest": self.digest,
        }
        return {**position, "initial": self.initial} if self.initial > self.rows else position

    @classmethod
    def decode(cls, position: Position) -> TablePosition:
        """Return the position that was stored."""
        return cls(**position)

    def __str__(self) -> str:
        """Return the position as text, for messages."""
        if not self.mark:
            return "nothing"
        return f"mark {self.mark} (checkpoint {self.checkpoint} of timeline {self.timeline})"
