"""What a stateful operator is: a vectorised function of (rows, keyed state, watermarks).

An operator never sees attempts, checkpoints or files. It runs inside one subtask, which owns a contiguous range of
key groups, and sees an epoch's rows in plan order: its result must not depend on how rows were cut into buffers.
Times and watermarks are int64 microseconds since the epoch, UTC; a watermark of None is minus infinity.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import pyarrow as pa

TIMER_COLUMN = "__timer"
"""State column (int64, us): the row is *due* when its timer <= the firing watermark. Optional."""

EXPIRES_COLUMN = "__expires"
"""State column (int64, us): the row is dead when it is <= the firing watermark; merges drop it. Optional."""


class OutputKind(Enum):
    """APPEND: a row is final. UPDATES: a row replaces the last one with its key."""

    APPEND = "append"
    UPDATES = "updates"


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The two watermarks of one operator in one epoch (DESIGN 4.3).

    Attributes:
        lateness_us: at the start of the epoch: decides which of its rows are late.
        firing_us: at the end of the epoch: decides which windows are emitted. Never below the previous one.
        previous_firing_us: the firing watermark of the previous checkpoint.
    """

    lateness_us: int | None
    firing_us: int | None
    previous_firing_us: int | None


@dataclass(frozen=True, slots=True)
class OperatorOutput:
    """Rows this epoch emits (output schema) and rows it refused as late (input schema)."""

    rows: pa.Table
    late: pa.Table


class OperatorFailed(Exception):
    """The operator cannot process this epoch's rows: the subtask declines with `reason`; it is not a bug.

    Attributes:
        uid: the operator.
        reason: who, what, expected and got, in one line.
    """

    def __init__(self, uid: str, reason: str) -> None:
        super().__init__(f"operator {uid!r}: {reason}")
        self.uid, self.reason = uid, reason


class KeyedState(Protocol):
    """The keyed state of one operator in one subtask, as the operator sees it.

    Rows have the operator's state schema; the key columns are unique among live rows.
    """

    def lookup(self, keys: pa.Table) -> pa.Table:
        """Live rows whose key columns equal one of `keys` (nulls equal nulls); any order."""

    def due(self, time_us: int) -> pa.Table:
        """Live rows whose timer or expiry is <= time_us."""

    def upsert(self, rows: pa.Table) -> None:
        """Insert or replace by key; `rows` has no key twice."""

    def delete(self, keys: pa.Table) -> None:
        """Remove by key; unknown keys are fine."""


class StatefulOperator(Protocol):
    """One operator of the spec, ready to run. Built from its spec and its input's Arrow schema.

    Attributes:
        key: columns that identify a row of its state.
        routing_key: the part of it by which input rows are exchanged; it decides the key group.
        output_key: columns that identify a row of its output, for updates; () when rows are final.
        output_kind: append or updates.
    """

    uid: str
    key: tuple[str, ...]
    routing_key: tuple[str, ...]
    output_key: tuple[str, ...]
    state_schema: pa.Schema
    output_schema: pa.Schema
    output_kind: OutputKind

    def process(self, rows: pa.Table, state: KeyedState, watermarks: Watermarks) -> OperatorOutput:
        """Apply one epoch's rows of this subtask to the state. `rows` may be empty: timers still fire.

        Called once per epoch. Raises OperatorFailed.
        """
