"""A stateful operator is a set of vectorised functions of (rows, keyed state, watermarks).

An operator never sees attempts, checkpoints or files. It runs inside one subtask, which owns a contiguous range of
key groups, and takes an epoch's rows in pieces, in plan order: its result must not depend on how they were cut.
Times and watermarks are int64 microseconds since the epoch, UTC; a watermark of None is minus infinity.

Inputs are told apart by position, in the order of the spec: a self-join has two of one producer. Rows come by stamp;
within a stamp first those that were in flight, in the order in which they were left, then input after input, each in
plan order (`spark/task/input_gate.py`). So the order in which inputs take turns is a function of plan and cuts (I12).

Two watermarks meet here (DESIGN 4.3). The *lateness watermark* is stamped on a row when it is read from its source and
decides for ever whether the row is late. The *firing watermark* says which windows and timers are done. It never passes
the lateness stamp of a row that is still to come, also in a later epoch: where a run without rows in flight takes a row
of stamp s, it has fired up to s and no further, so state that is forgotten by event time is forgotten at the same row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milepost.protocol.records import IDENTITY_COLUMNS, ROW_IDENTITY, WEIGHT_COLUMN, CheckpointId
from milepost.protocol.subtask import Notification

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

TOTAL_COLUMN = "__total"
"""Key column of state (bool, always true) of an operator without key columns: it has one row."""

TYPE_OF = b"milepost.type_of"
"""Field metadata of a state column whose name does not tell it: the input column whose type it has."""


class OutputKind(Enum):
    """APPEND: a row is final. UPDATES: a row replaces the last one with its key."""

    APPEND = "append"
    UPDATES = "updates"


OUTPUT_BYTES = 16_000_000
"""What one output of an operator that makes more rows than it takes has at most, or its one row: rows of one key cannot
be divided over slices, and what they are paired with may be any number."""


@dataclass(frozen=True, slots=True)
class OperatorInput:
    """The rows of one input as an operator gets them.

    Attributes:
        schema: the columns that it needs.
        event_time: column that times them; None: none does.
        shift_us: what is added to it: -1 for the end of a window, which is the first moment that is not in it.
        stable_key: of mode retract: key columns of rows that are replaced but never deleted.
    """

    schema: pa.Schema
    event_time: str | None
    shift_us: int = 0
    stable_key: tuple[str, ...] = ()


ONLY_TABLE = ""
"""Name of the table of an operator that keeps one."""


@dataclass(frozen=True, slots=True)
class StateTable:
    """A table of keyed state that an operator declares.

    Attributes:
        key: columns that identify a row of it.
        routing_key: the part of it that decides the key group: the columns by which the operator's input is exchanged,
            perhaps under other names.
        schema: of its rows.
        tie_break: columns by which one of several equal rows was chosen, in the order in which they are compared. The
            other rows are not stored, so state cannot be continued with these columns in another order.
    """

    key: tuple[str, ...]
    routing_key: tuple[str, ...]
    schema: pa.Schema
    tie_break: tuple[str, ...] = ()


def only_table(
    key: Sequence[str], routing_key: Sequence[str], schema: pa.Schema, tie_break: Sequence[str] = ()
) -> Mapping[str, StateTable]:
    """Return the declaration of an operator that keeps one table."""
    return {ONLY_TABLE: StateTable(tuple(key), tuple(routing_key), schema, tuple(tie_break))}


def multi_row_table(
    routing_key: Sequence[str], rows: pa.Schema, times: Sequence[str] = (), tie_break: Sequence[str] = ()
) -> StateTable:
    """Return the declaration of a table that keeps rows one by one: equal ones once, with their number.

    Args:
        rows: their columns, the routing key among them. times: `TIMER_COLUMN`, `EXPIRES_COLUMN`, or both.
    """
    columns = {ROW_IDENTITY: json.dumps(rows.names)}
    identity = [pa.field(name, pa.int64()) for name in IDENTITY_COLUMNS]
    identity[0] = identity[0].with_metadata(columns)
    others = [pa.field(name, pa.int64()) for name in (WEIGHT_COLUMN, *times)]
    key = (*routing_key, *IDENTITY_COLUMNS)
    return StateTable(key, tuple(routing_key), pa.schema([*rows, *identity, *others]), tuple(tie_break))


@dataclass(frozen=True, slots=True)
class OperatorOutput:
    """Rows that one piece emits (output schema) and rows of it that were refused as late (schema of its input)."""

    rows: pa.Table
    late: pa.Table


class OperatorFailed(Exception):
    """The operator cannot process its rows: the subtask declines with `reason`; it is not a bug.

    Attributes:
        uid: the operator.
        reason: who, what, expected and got, in one line.
    """

    def __init__(self, uid: str, reason: str) -> None:
        super().__init__(f"operator {uid!r}: {reason}")
        self.uid, self.reason = uid, reason


class GroupedKeys(Protocol):
    """The distinct keys of some rows, in the order of their state hash, and the way to their state.

    Looking a key up, hashing and ordering it costs the most of an epoch: here it is done once.
    """

    @property
    def keys(self) -> pa.Table:
        """One row per distinct key."""

    @property
    def codes(self) -> Ints:
        """Of each row the number of its key in `keys`."""

    @property
    def first(self) -> Ints:
        """Of each key the index of its first row."""

    def find(self) -> tuple[pa.Table, Bools]:
        """Return the state of each key, in order, null beside the key where there is none; and where there is one."""

    def find_at_start(self) -> tuple[pa.Table, Bools]:
        """Return as `find` does the state of each key when the epoch began."""

    def put(self, rows: pa.Table, kept: Bools | None = None) -> None:
        """Insert or replace: a row of the state schema for each key, in order; of those in `kept` when it is given."""


class RowsOfKeys(Protocol):
    """Rows that a table has of some routing keys; their values are taken when they are asked for."""

    @property
    def owners(self) -> Ints:
        """Of each row the number of its routing key, ascending."""

    def take(self, columns: Sequence[str], positions: Ints | None = None) -> pa.Table:
        """Return some columns of all rows, or of those at some positions, in their order."""


class KeyedState(Protocol):
    """One table of an operator's keyed state in one subtask, as the operator sees it.

    Rows have the table's schema; the key columns are unique among live rows.
    """

    def group(self, keys: pa.Table) -> GroupedKeys:
        """Number rows by their key; `keys` has the key columns of each (nulls equal nulls)."""

    def owns(self, keys: pa.Table) -> Bools:
        """Return which keys, with all key columns, have their rows here, and not in another subtask."""

    def lookup(self, keys: pa.Table) -> pa.Table:
        """Live rows whose key columns equal one of `keys` (nulls equal nulls); any order."""

    def due(self, time_us: int) -> pa.Table:
        """Live rows whose timer or expiry is <= time_us."""

    def upsert(self, rows: pa.Table) -> None:
        """Insert or replace by key; `rows` has no key twice."""

    def delete(self, keys: pa.Table) -> None:
        """Remove by key; unknown keys are fine."""

    def lookup_all(self, routing_keys: pa.Table) -> RowsOfKeys:
        """Find all live rows of distinct routing keys, named and typed as the table's routing key."""

    def lookup_all_at_start(self, routing_keys: pa.Table) -> RowsOfKeys:
        """Find the rows that routing keys had when the epoch began, as `lookup_all` does."""

    def rows(self) -> pa.Table:
        """Return all live rows."""

    def add(self, rows: pa.Table) -> None:
        """Add rows to a table of `multi_row_table`, one by one: all columns but their identity and number.

        With `WEIGHT_COLUMN` among them a row comes, or goes, so many times.
        """


class OperatorRun(Protocol):
    """One epoch of one operator in one subtask: any number of `rows` and `advance`, then `finish` once.

    The rows that come out and the state that is left do not depend on how the rows of one stamp were cut into pieces;
    one piece that holds them all costs no more than the operator itself. All methods raise OperatorFailed; the epoch of
    the subtask is lost then.
    """

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Take up the next rows in plan order; emit those that are final as they come.

        They are taken up once the iterator has ended. An output is as large as the piece, or has at most OUTPUT_BYTES.

        Args:
            position: which of the operator's inputs they are of, from 0.
            rows: none too many or too few columns but in any order; may be empty.
            lateness_us: the stamp that these rows share. It may differ between calls: rows of channel state keep the
                one they were read with.
        """

    def advance(self, firing_us: int | None) -> pa.Table:
        """Fire what is due at a firing watermark, before rows follow that must find it done; return what is emitted.

        Args:
            firing_us: the least stamp of the rows that are still to come. One that has been reached does nothing.
        """

    def finish(self, firing_us: int | None) -> pa.Table:
        """Fire what is due at the epoch's firing watermark, and emit keys that changed, each once.

        Args:
            firing_us: never below one that `advance` or the previous checkpoint reached.
        """


@runtime_checkable
class RetractingRun(Protocol):
    """A run that tells by how much its output has changed: its rows are updates, and operators read them."""

    def retractions(self) -> pa.Table:
        """Return, after `finish`, the rows that are taken back, as they were when the epoch began, and the new ones.

        Output schema and `WEIGHT_COLUMN`, -1 and 1, key after key: -1 first. A row that is as it was is not there.
        """


@runtime_checkable
class UpdatedRun(Protocol):
    """A run over an input of mode retract."""

    def check_settled(self, *, all_keys: bool) -> None:
        """Look, after `finish` and with nothing in flight, that no row was taken back that never came.

        Args:
            all_keys: rows were in flight before, so keys may be short of one that nothing has come for now.
        Raises:
            OperatorFailed: a weight is below 0.
        """


class Combiner(Protocol):
    """Folds input rows of an operator into fewer rows before they are exchanged (two-phase aggregation).

    Whatever was combined with whatever, the operator's results and its state are those of the rows themselves.
    """

    def combine(self, rows: pa.Table) -> pa.Table:
        """Return the partial results of input rows: one row per key, with the key columns among its columns."""

    def ingest(self, run: OperatorRun, partials: pa.Table) -> int:
        """Have a run of the operator take partial results up; return how many input rows they stand for."""


class CheckpointListener(Protocol):
    """Listens to what becomes of checkpoints (I11): at least once each, on whatever machine the subtask runs."""

    def notify(self, checkpoint_id: CheckpointId, what: Notification) -> None:
        """Take notice of one checkpoint. Raises OperatorFailed."""


class StatefulOperator(Protocol):
    """One operator of the spec, ready to run. Built from its spec and the rows of its inputs.

    Attributes:
        tables: of its state, by name: one operator may keep several, each checkpointed as a whole.
        routing_keys: of each input, the columns by which its rows are exchanged: their values are the routing key of
            every table. (): all rows go to one subtask.
        output_key: columns that identify a row of its output, for updates: () of one that has one row. () when rows
            are final.
        output_kind: append or updates.
        combiner: for the rows of an operator with one input to which their order does not matter; None for others.
        listener: to what becomes of checkpoints; None for an operator that does not ask to be told.
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
            tables: by the names that it declares.
            previous_firing_us: this subtask's firing watermark in the checkpoint that it continues.
        """
