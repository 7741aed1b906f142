"""Arguments of sources that are open tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from milepost.jobspec.job import EventTimeSpec
from milepost.language import ColumnType
from milepost.protocol.landed import Position
from milepost.sources.landed.contract import Note


@dataclass(frozen=True, slots=True)
class TableReading:
    """How a source reads an open table.

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

    def start_notes(self, position: Position | None, count_files: Callable[[], int | None]) -> tuple[Note, ...]:
        """Return the facts for `doctor` about the rows before the start of a log.

        Args:
            position: the end of the log; None: nothing was landed yet.
            count_files: returns how many data files the table has; None: unknown.
        """
        if position is not None or self.start != "latest" or (files := count_files()) is None:
            return ()
        return (Note(f"data files that `start: latest` skips: {files}"),)
