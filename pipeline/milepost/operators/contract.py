"""Contract of stateful operators: vectorised functions of rows, keyed state and watermarks.

An operator never sees attempts, checkpoints or files. It runs inside one subtask, which owns a contiguous range of
key groups. It receives an epoch's rows in pieces, in plan order, and its result must not depend on how they were cut.
Times and watermarks are int64 microseconds since the epoch, UTC. A watermark of None is minus infinity.

Inputs are identified by position, in the order of the spec, because both inputs of a self-join have the same producer.
Rows are ordered by stamp. Within a stamp, rows in flight come first, in the order in which they were left. Then follow
the inputs one after another, each in plan order (`spark/task/input_gate.py`). The order in which inputs alternate is
therefore a function of plan and cuts (I12).

There are two watermarks (DESIGN 4.3). The *lateness watermark* is stamped on a row when it is read from its source and
decides permanently whether the row is late. The *firing watermark* decides which windows and timers are complete. It
never passes the lateness stamp of a row that has not arrived yet, including rows of later epochs. When a run without
rows in flight processes a row of stamp s, it has fired exactly up to s. State that expires by event time is therefore
deleted at the same row, with or without rows in flight.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milepost.protocol.records import IDENTITY_COLUMNS, ROW_IDENTITY, WEIGHT_COLUMN, CheckpointId
from milepost.protocol.subtask import Notification

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

TOTAL_COLUMN = "__total"
"""Key column of the state of an operator without key columns (bool, always true). Such state has one row."""

TYPE_OF = b"milepost.type_of"
"""Field metadata of a state column with another name than its input column: the column that determines its type."""


class OutputKind(Enum):
    """APPEND: a row is final. UPDATES: a row replaces the previous row of its key."""

    APPEND = "append"
    UPDATES = "updates"


OUTPUT_BYTES = 16_000_000
"""Upper bound of one output of an operator that emits more rows than it receives, unless a single row is larger.

Rows of one key cannot be divided over slices, and a row may be paired with any number of rows."""


@dataclass(frozen=True, slots=True)
class OperatorInput:
    """Schema and event time of one input of an operator.

    Attributes:
        schema: the columns that the operator needs.
        event_time: event-time column. None: the rows have no event time.
        shift_us: offset added to the event time: -1 for the end of a window, which is exclusive.
        stable_key: for an input of mode retract, key columns of rows that are replaced but never deleted; None if rows
            may be deleted.
    """

    schema: pa.Schema
    event_time: str | None
    shift_us: int = 0
    stable_key: tuple[str, ...] | None = None

    def always_has(self, key: Sequence[str]) -> bool:
        """Return whether a value of these columns that has a row always has one, for an input of mode retract.

        Updates by `city, hour` that delete no row always have a row of each city. A row may go from one `total` to
        another. If rows are deleted, the last one of a city may be, and for no columns the last one of all.
        """
        return self.stable_key is not None and {*key} <= {*self.stable_key}


ONLY_TABLE = ""
"""Name of the table of an operator with a single table."""


@dataclass(frozen=True, slots=True)
class StateTable:
    """A table of keyed state that an operator declares.

    Attributes:
        key: columns that identify a row of it.
        routing_key: the part of the key that decides the key group. These are the columns by which the operator's input
            is exchanged, possibly under other names.
        schema: schema of its rows.
        tie_break: columns that chose one of several equal rows, in the order of comparison. The other rows are not
            stored, so state cannot be continued with these columns in another order.
    """

    key: tuple[str, ...]
    routing_key: tuple[str, ...]
    schema: pa.Schema
    tie_break: tuple[str, ...] = ()


def only_table(
    key: Sequence[str], routing_key: Sequence[str], schema: pa.Schema, tie_break: Sequence[str] = ()
) -> Mapping[str, StateTable]:
    """Return the declaration of an operator with a single table."""
    return {ONLY_TABLE: StateTable(tuple(key), tuple(routing_key), schema, tuple(tie_break))}


def multi_row_table(
    routing_key: Sequence[str], rows: pa.Schema, times: Sequence[str] = (), tie_break: Sequence[str] = ()
) -> StateTable:
    """Return the declaration of a table with multiset semantics: equal rows are stored once, with their number.

    Args:
        rows: columns of the rows, including the routing key.
        times: `TIMER_COLUMN`, `EXPIRES_COLUMN`, or both.
    """
    columns = {ROW_IDENTITY: json.dumps(rows.names)}
    identity = [pa.field(name, pa.int64()) for name in IDENTITY_COLUMNS]
    identity[0] = identity[0].with_metadata(columns)
    others = [pa.field(name, pa.int64()) for name in (WEIGHT_COLUMN, *times)]
    key = (*routing_key, *IDENTITY_COLUMNS)
    return StateTable(key, tuple(routing_key), pa.schema([*rows, *identity, *others]), tuple(tie_break))


@dataclass(frozen=True, slots=True)
class OperatorOutput:
    """Rows that one piece emits (output schema), and its late rows (schema of its input)."""

    rows: pa.Table
    late: pa.Table


class OperatorFailed(Exception):
    """The operator cannot process its rows, which is not a bug. The subtask declines with `reason`.

    Attributes:
        uid: uid of the operator.
        reason: the problem in one line: who, what, expected and got.
    """

    def __init__(self, uid: str, reason: str) -> None:
        super().__init__(f"operator {uid!r}: {reason}")
        self.uid, self.reason = uid, reason


class GroupedKeys(Protocol):
    """The distinct keys of some rows, in the order of their state hash, with access to their state.

    Hashing, ordering and looking up keys takes most of an epoch's time. This object does it once.
    """

    @property
    def keys(self) -> pa.Table:
        """One row per distinct key."""

    @property
    def codes(self) -> Ints:
        """Index into `keys` of each row."""

    @property
    def first(self) -> Ints:
        """Index of the first row of each key."""

    def find(self) -> tuple[pa.Table, Bools]:
        """Return (state row of each key in order, whether the key has state). Without state all but the key is null."""

    def find_at_start(self) -> tuple[pa.Table, Bools]:
        """Return the state at the start of the epoch, in the form of `find`."""

    def put(self, rows: pa.Table, kept: Bools | None = None) -> None:
        """Insert or replace a row of the state schema per key, in order. With `kept`, only for the keys it selects."""


class RowsOfKeys(Protocol):
    """Rows of a table that have some routing keys. Their values are read on demand."""

    @property
    def owners(self) -> Ints:
        """Index of the routing key of each row, ascending."""

    def take(self, columns: Sequence[str], positions: Ints | None = None) -> pa.Table:
        """Return some columns of all rows, or of the rows at `positions`, in that order."""


class KeyedState(Protocol):
    """One table of an operator's keyed state in one subtask.

    Rows have the table's schema. The key columns are unique among live rows.
    """

    def group(self, keys: pa.Table) -> GroupedKeys:
        """Group rows by key. `keys` has the key columns of each row (nulls equal nulls)."""

    def owns(self, keys: pa.Table) -> Bools:
        """Return which keys (all key columns) belong to this subtask."""

    def lookup(self, keys: pa.Table) -> pa.Table:
        """Return live rows whose key columns equal one of `keys` (nulls equal nulls), in any order."""

    def due(self, time_us: int) -> pa.Table:
        """Return live rows with a timer or expiry <= time_us."""

    def upsert(self, rows: pa.Table) -> None:
        """Insert or replace rows by key. `rows` has each key at most once."""

    def delete(self, keys: pa.Table) -> None:
        """Delete rows by key. Missing keys are ignored."""

    def lookup_all(self, routing_keys: pa.Table) -> RowsOfKeys:
        """Return all live rows of distinct routing keys, which have the names and types of the table's routing key."""

    def lookup_all_at_start(self, routing_keys: pa.Table) -> RowsOfKeys:
        """Return the rows of routing keys at the start of the epoch, in the form of `lookup_all`."""

    def lookup_unchanged(self, routing_keys: pa.Table) -> RowsOfKeys:
        """Return what `lookup_all` returns, without the rows of `weight_changes`. For tables of `multi_row_table`."""

    def rows(self) -> pa.Table:
        """Return all live rows."""

    def add(self, rows: pa.Table) -> None:
        """Add rows to a table of `multi_row_table`. They have all columns except those of the identity.

        `WEIGHT_COLUMN` may be missing and is 1 by default. A row of weight 2 is added twice, and a row of weight -1 is
        removed once.
        """

    def weight_changes(self) -> tuple[pa.Table, Ints]:
        """Return the rows of a table of `multi_row_table` whose weight this epoch has changed, by their state hash.

        Returns:
            (rows with all columns and their weight now, 0 if they are deleted; the weight of each at the start).
        """


class OperatorRun(Protocol):
    """One epoch of one operator in one subtask: any number of calls of `rows` and `advance`, then `finish` once.

    Emitted rows and resulting state do not depend on how the rows of one stamp are cut into pieces. A single piece with
    all rows has no extra cost. All methods raise OperatorFailed, after which the subtask's epoch is lost.
    """

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Process the next rows in plan order, and emit rows that are final immediately.

        The rows are processed when the iterator has ended. An output is as large as the piece, or at most OUTPUT_BYTES.

        Args:
            position: index of the operator's input, from 0.
            rows: rows with exactly the input's columns, in any column order. May be empty.
            lateness_us: the stamp of these rows. It may differ between calls, because rows in flight keep the stamp
                with which they were read.
        """

    def advance(self, firing_us: int | None) -> pa.Table:
        """Fire windows and timers due at a firing watermark, before later rows arrive. Return the emitted rows.

        Args:
            firing_us: the minimum stamp of the rows that have not arrived yet. A watermark already reached has no
                effect.
        """

    def finish(self, firing_us: int | None) -> pa.Table:
        """Fire windows and timers due at the epoch's firing watermark, and emit each changed key once.

        Args:
            firing_us: never below a watermark that `advance` or the previous checkpoint reached.
        """


class Combiner(Protocol):
    """Folds input rows of an operator into fewer rows before they are exchanged (two-phase aggregation).

    Results and state are the same as without it, for any combination of rows.
    """

    def combine(self, rows: pa.Table) -> pa.Table:
        """Return partial results of input rows: one row per key, which includes the key columns."""

    def ingest(self, run: OperatorRun, partials: pa.Table) -> int:
        """Apply partial results to a run of the operator. Return the number of input rows that they represent."""


class CheckpointListener(Protocol):
    """Observes the outcome of checkpoints (I11): each at least once, on any machine that runs the subtask."""

    def notify(self, checkpoint_id: CheckpointId, what: Notification) -> None:
        """Handle the outcome of one checkpoint. Raises OperatorFailed."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How an operator is used in a job.

    Attributes:
        function: user code of a process operator.
        timed: whether a source with event time is upstream.
        in_pieces: whether an epoch of the job may be cut when its time is up.
        retracts: whether operators read its updates.
    """

    function: object = None
    timed: bool = True
    in_pieces: bool = False
    retracts: bool = False


class StatefulOperator(Protocol):
    """One operator of the spec, ready to run. It is built from its spec and the schemas of its inputs.

    Attributes:
        tables: state tables by name, at least one. Each is checkpointed as a whole.
        routing_keys: per input, the columns by which its rows are exchanged. Their values are the routing key of every
            table. (): all rows go to one subtask.
        output_key: for updates, columns that identify an output row, () if the output has one row. () if rows are
            final.
        output_kind: append or updates.
        combiner: combiner of an operator with one input whose result does not depend on row order. None for others.
        listener: observer of checkpoint outcomes. None if the operator does not need them.
    """

    uid: str
    tables: Mapping[str, StateTable]
    routing_keys: tuple[tuple[str, ...], ...]
    output_key: tuple[str, ...]
    output_schema: pa.Schema
    output_kind: OutputKind
    combiner: Combiner | None
    listener: CheckpointListener | None

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> OperatorRun:
        """Start one subtask's epoch over its restored state. Raises OperatorFailed.

        Args:
            tables: restored tables by declared name.
            previous_firing_us: this subtask's firing watermark in the base checkpoint.
        """
