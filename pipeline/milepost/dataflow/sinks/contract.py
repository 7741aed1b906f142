"""A sink is a two-phase participant of the checkpoint, with a chain of its own (I14).

Order: `stage` in the subtasks -> committables travel in the acks into `_metadata` -> `prepare` before the commit point
(everything that can fail for a known reason) -> complete (manifest) -> `commit` -> confirmation (manifest).

The contract stands in parts, by who needs what: tasks and the epoch stage, leadership commits, reports read, retention
keeps house. A sink is all of them; `build.py` makes one from its spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Protocol

import pyarrow as pa

from milepost.dataflow.sinks.committables import (
    Committable,
    RowsPiece,
    SinkChange,
    SinkMark,
    StagedFile,
    TableContents,
    TableObject,
    TableWalk,
)
from milepost.dataflow.sinks.table_garbage import TableGarbage
from milepost.dataflow.sinks.table_history import TableHistory
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.object_store import ObjectStore


class SinkMode(Enum):
    """APPEND: every row stays. UPSERT: the table holds the latest row per key."""

    APPEND = "append"
    UPSERT = "upsert"


class StagingSink(Protocol):
    """What tasks stage, and what the epoch makes of it before its commit point; nothing of it is visible."""

    def stage(
        self, rows: pa.Table, *, checkpoint_id: int, token: int, subtask: int, distinct: bool = False
    ) -> StagedFile | None:
        """Write one file durably under the token's own prefix; None when rows is empty. Called inside tasks.

        Args:
            distinct: whether the caller knows that no two of the rows have the same key; False = it does not know.
        """

    def stage_pieces(
        self, pieces: Iterable[RowsPiece], *, checkpoint_id: int, token: int, subtask: int, held_bytes: int
    ) -> StagedFile | None:
        """As `stage`, of rows that come piece by piece.

        Args:
            held_bytes: how many bytes of rows to hold at once; of a part, or of those of part 0 in a table of the
                latest rows, all are held.
        """

    def committable(self, files: Iterable[StagedFile | None], schema: pa.Schema) -> Committable:
        """Collect what the subtasks staged, in subtask order; None (a subtask without rows) is left out."""

    def staged_table(self, committable: Committable) -> pa.Table:
        """Return the rows that this epoch would publish: what the quality gate sees. Raises StateCorrupt."""

    def prepare(self, committable: Committable, *, mark: SinkMark | None = None) -> None:
        """Fail now for every reason known now (schema, owner, permission). Changes nothing visible.

        With the mark that the commit will carry it also refuses a head that is already at or past it.
        """

    def reserve(self, identity: str) -> None:
        """Make a new table this job's, before anything is staged for it.

        Args:
            identity: of the job, not its name: a job made anew is another.
        Raises: InvalidRequest: it is reserved for another job or sink, or belongs to one.
        """

    def is_anothers(self, identity: str) -> bool:
        """Return whether the table is reserved for another job or sink: then nothing below its path is this one's."""

    def compact(
        self, committable: Committable, *, predecessor: int | None, checkpoint_id: int, token: int
    ) -> Committable:
        """Stage what keeps the table from growing for ever, if it is time; else return the committable unchanged.

        Before the commit point, after the gate; what it returns replaces the committable. Changes nothing visible.
        """

    def abort(self, *, checkpoint_id: int, token: int) -> None:
        """Delete what this epoch staged, if and only if no head of any lineage refers to it."""


class CommittingSink(Protocol):
    """The sink's chain: commits after the commit point, and what follows a switch of the live timeline (I14)."""

    def commit(self, committable: Committable, mark: SinkMark) -> bool:
        """Compare-and-swap the sink's head from mark.predecessor, on mark.timeline, to mark.

        Returns: True when this call published it, False when it (or a descendant) was already there.
        Raises: Superseded when the head is neither the predecessor on that timeline, nor the mark, nor a descendant.
        """

    def is_committed(self, mark: SinkMark) -> bool:
        """Return whether the head is the mark or descends from it."""

    def head(self) -> SinkMark | None:
        """Return the current mark; None before the first commit."""

    def find(self, checkpoint_id: int) -> SinkMark | None:
        """Return the newest mark of that checkpoint in the table's whole history, lineages that were left included."""

    def as_it_stands(self) -> Sink:
        """This sink for one look: its newest head is read once, but for a commit or a follow, which read it anew."""

    def check_follow(self, base: SinkMark | None, committables: Sequence[tuple[CheckpointId, Committable]]) -> None:
        """Raise now what `follow` would raise, the decision apart. Reads no rows, changes nothing."""

    def follow(
        self,
        *,
        base: SinkMark | None,
        committables: Sequence[tuple[CheckpointId, Committable]],
        mark: SinkMark,
        decision: int,
    ) -> bool:
        """Compare-and-swap by decision: in one atomic step the table becomes what it was as of `base`, plus these.

        After every switch of the live timeline, before its first commit, also when nothing changes: a commit of the
        timeline that was left never fits again.

        Args:
            base: a mark anywhere in the table's history (`find`); None for the empty table.
            committables: of checkpoints after the base that were never published, oldest first.
            mark: (timeline that goes on here, checkpoint of the last committable, else of the base, else 0).
            decision: manifest version of the switch, from 1; commits carry it on.
        Returns: True when this call did it, False when the table followed this decision before, whatever came since.
        Raises: Superseded: it follows a newer decision. NotFound: no such base.
        """


class ReadableSink(Protocol):
    """The table as readers see it, now and as of each checkpoint of its history."""

    def read(self, checkpoint_id: int | None = None, *, verify: bool = False) -> pa.Table:
        """Return the published table at the head, or as of a checkpoint of its history.

        Raises NotFound, StateCorrupt.
        """

    def verify(self, checkpoint_id: int | None = None, *, deep: bool = False) -> list[str]:
        """Problems of the published table, one line each; [] when everything it refers to is there and whole."""

    def compare(self, base: SinkMark | None, committables: Sequence[tuple[CheckpointId, Committable]]) -> SinkChange:
        """Return what `follow` would change, without writing; raises what it would raise, the decision apart."""

    def contents(
        self, base: SinkMark | None, committables: Sequence[tuple[CheckpointId, Committable]]
    ) -> TableContents:
        """Return what the table would consist of after such a `follow`, without writing; raises as `compare`."""

    def undo_limits(self) -> tuple[str, ...]:
        """Return what a follow cannot undo, one line each, for people."""

    def import_key(self, file: StagedFile, number: int, *, checkpoint_id: int, token: int) -> str:
        """Where the n-th file of a table that comes from elsewhere is staged, from 0, so that a follow can name it."""

    def stored_sizes(self, keys: Iterable[str]) -> dict[str, int]:
        """Return the sizes of those of these objects that exist now, by key."""


class HousekeptSink(Protocol):
    """All that lies below the table's path, and which of it nothing needs any more (I8)."""

    @property
    def store(self) -> ObjectStore:
        """Rooted at the table: its files lie at their keys."""

    def walk(self) -> TableWalk:
        """Return everything below the path, and what the chain and its newest head need. Raises InvalidRequest."""

    def objects(self) -> tuple[TableObject, ...]:
        """Return all objects below the path."""

    def history(self) -> TableHistory:
        """Return the table's history as it stands now, for one look at all that its checkpoints need."""

    def garbage(self) -> TableGarbage:
        """Return the lists of files that nothing needs any more."""


class Sink(StagingSink, CommittingSink, ReadableSink, HousekeptSink, Protocol):
    """One sink of the spec, opened on its store.

    Attributes:
        key: key columns of an upsert table; () for append.
    """

    name: str
    mode: SinkMode
    key: tuple[str, ...]
