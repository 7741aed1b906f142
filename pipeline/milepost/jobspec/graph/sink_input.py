"""What one sink of the job graph reads."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.language import ColumnType


@dataclass(frozen=True, slots=True)
class SinkInput:
    """What one sink reads.

    Attributes:
        sink: name of the sink. uid: the node it reads. part: "", LATE (followed by the input if there are two), BAD, or
            REJECTED.
        mode: append, upsert or changelog. key: the upsert key; () for other modes.
        routing_key: the columns of `key` that route rows to subtasks, in the order in which they are hashed; None: all.
        columns, columns_known: as in `Node`; for a changelog including the columns it adds.
        op: operation of a changelog row without a delete: `insert`, or `upsert` by its key.
        deletes: as in `Node`; False for late rows and bad records.
        rejected_by: the sink that it has the quarantined rows of; None: it does not read rejected rows.
    """

    sink: str
    uid: str
    part: str
    mode: str
    key: tuple[str, ...]
    columns: dict[str, ColumnType | None]
    columns_known: bool = True
    op: str = "insert"
    deletes: bool = False
    routing_key: tuple[str, ...] | None = None
    rejected_by: str | None = None

    @property
    def output(self) -> str:
        """The name of the output that it reads: `totals`, `totals.late`, `visits.bad`, or `table.rejected`."""
        return (self.uid if self.rejected_by is None else self.rejected_by) + self.part
