"""Rows of a replayed epoch, as the job master and the data plane exchange them to trace an output row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from milepost.epoch.answers import EpochAnswers
from milepost.epoch.plan import EpochPlan
from milepost.protocol.records import StoreConfig

OBJECT, RECORD = "__object", "__record"
"""Columns added to rows of a source: the key of their object, and their number among its readable records, from 0."""

RecordPlace = int | tuple[str, int, int]
"""Where a record is in its object: its line, the number of its row from 1, or topic, partition and offset."""

_STAMP = "\0stamp of "


def stamp_column(operator: str) -> str:
    """Return the column added to rows of a node: the lateness watermark at which an operator reads them.

    It is in microseconds since 1970. No column of a job has a name with a null character.
    """
    return _STAMP + operator


def is_stamp(column: str) -> bool:
    """Return whether a column is one of `stamp_column`."""
    return column.startswith(_STAMP)


RowFilter = Callable[[str, pa.Table], pa.Table]
"""Return the rows of a source to retain. Called with the source's name."""


@dataclass(frozen=True, slots=True)
class TracedSplit:
    """Retained rows of one source subtask.

    Attributes:
        rows: with the columns `OBJECT` and `RECORD`; None: no row was read.
        bad: key of an object -> its records that cannot be read.
        ack: what the subtask acknowledged: counts and event times of all its rows, not only the retained ones.
        end: the subtask's last item, for a replay.
    """

    source: str
    rows: pa.Table | None
    bad: Mapping[str, frozenset[RecordPlace]]
    ack: Mapping[str, Any]
    end: object

    @property
    def num_rows(self) -> int:
        """Number of retained rows."""
        return 0 if self.rows is None else int(self.rows.num_rows)


@dataclass(frozen=True, slots=True)
class TracedEpoch:
    """A replayed epoch.

    Attributes:
        rows: output name -> its rows, in the order in which they were emitted. Those of sources have `OBJECT` and
            `RECORD`, and those that an operator reads have its `stamp_column`.
    """

    answers: EpochAnswers
    rows: Mapping[str, Sequence[pa.Table]]


class EpochTracer(Protocol):
    """Interface of the data plane to replay recorded epochs with some of their rows. Sinks get nothing."""

    def read(self, plan: EpochPlan, retain: RowFilter) -> tuple[TracedSplit, ...]:
        """Read the sources of an epoch. Raises SubtaskDeclined, or an error of the store."""

    def run(self, plan: EpochPlan, splits: Sequence[TracedSplit], restored: StoreConfig | None) -> TracedEpoch:
        """Run the operators of an epoch over rows that `read` returned. Raises SubtaskDeclined.

        Args:
            restored: store with state that the plan's own store lacks. Nothing is written to it.
        """
