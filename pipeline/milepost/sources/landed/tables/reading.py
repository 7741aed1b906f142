"""What a source reads of an open table, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milepost.jobspec.job import EventTimeSpec
from milepost.language import ColumnType


@dataclass(frozen=True, slots=True)
class TableReading:
    """Arguments of every source that is an open table.

    Attributes:
        source: its name, for messages.
        types: the declared columns. event_time: the column of the event time; None: rows have none.
        start: where a new log begins, as in the spec. max_bytes: of the data files of one record.
        by_reference: whether records refer to the data files, which are not copied.
    """

    source: str
    types: Mapping[str, ColumnType]
    event_time: EventTimeSpec | None
    start: str | int
    max_bytes: int
    by_reference: bool = False
