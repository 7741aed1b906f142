"""The sink interface: a two-phase commit participant whose table follows the manifest (I14).

Order: `stage_pieces` in the subtasks -> committables in the acknowledgements -> `prepare` before the commit point,
which fails for every reason that is known then, and returns the change to the contents -> the checkpoint completes in
the manifest -> `move` -> confirmation in the manifest.

The interface is divided by caller: tasks stage, the epoch prepares, leadership moves, reports read, retention deletes.
A sink implements all parts; `build.py` constructs it from the spec.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import pyarrow as pa

from milepost.protocol.records import CheckpointId, FencingToken, ObjectStat, ObjectStore
from milepost.sinks.table_format import OpenTable
from milepost.tables.records import (
    Committable,
    ContentsChange,
    Mark,
    RowsPiece,
    SchemaText,
    StagedFile,
    StagedRows,
    StagingContext,
    TableContents,
    TableGarbage,
    TableOwner,
    TableView,
    encode_schema,
)


class SinkMode(Enum):
    """APPEND: keep every row. UPSERT: keep the latest row per key. CHANGELOG: store every change as a row."""

    APPEND = "append"
    UPSERT = "upsert"
    CHANGELOG = "changelog"


@dataclass(frozen=True, slots=True)
class TablePosition:
    """The mark that a table carries, as of one read.

    Attributes:
        number: of the mark; 0 for none.
        mark: None if the number is 0, or if the job has no record of it: another writer or a copy of the job moved
            the table, or an older state of it was restored.
        readers_version: see `OpenTable`.
    """

    number: int
    mark: Mark | None
    readers_version: str | None = field(default=None, compare=False)

    @property
    def is_known(self) -> bool:
        """Whether the job knows what the table shows."""
        return self.number == 0 or self.mark is not None

    @property
    def checkpoint_id(self) -> int:
        """The checkpoint that the table shows; 0 for the empty table."""
        return 0 if self.mark is None else self.mark.checkpoint_id

    @property
    def contents(self) -> TableContents | None:
        """The contents that the table shows; None if it shows none, or if they are unknown."""
        return None if self.mark is None else self.mark.contents

    def __str__(self) -> str:
        """Return the position as text. Equal positions have equal texts."""
        if not self.number:
            return "nothing yet"
        if self.mark is None:
            return f"mark {self.number}, which is not of this job"
        return f"checkpoint {self.mark.checkpoint_id} of timeline {self.mark.timeline}"


@dataclass(frozen=True, slots=True)
class TableTarget:
    """The contents that a transition of the manifest requires of a table.

    Attributes:
        number: manifest version of the transition. timeline: the live timeline after it.
        contents: None for the empty table.
        follows: the checkpoint that the table must show before, 0 for the empty table: an epoch adds to exactly that
            one. None: any (a switch of the live timeline).
        realigns: move the table even if its position is unknown, because a person requested a realignment.
        retained: the retained checkpoints; None if not looked up.
    """

    number: int
    timeline: str
    contents: TableContents | None
    follows: int | None = None
    realigns: bool = False
    retained: frozenset[int] | None = None

    @property
    def checkpoint_id(self) -> int:
        """The checkpoint that the table shows after the move; 0 for the empty table."""
        return 0 if self.contents is None else self.contents.checkpoint_id


@dataclass(frozen=True, slots=True)
class PreparedTable:
    """An epoch's prepared change to a table.

    Attributes:
        change: to its files. schema, files, rows: of the table after the change.
        table_id: None if the table has not been opened yet (a fork).
    """

    change: ContentsChange
    schema: SchemaText
    files: int
    rows: int
    table_id: str | None

    @classmethod
    def after(
        cls, change: ContentsChange, recorded: Sequence[StagedFile], schema: pa.Schema, table_id: str | None
    ) -> PreparedTable:
        """Return the prepared change to a table with the recorded files."""
        files = change.applied_to(recorded)
        return cls(change, encode_schema(schema), len(files), sum(file.rows for file in files), table_id)


@dataclass(frozen=True, slots=True)
class TableObject:
    """One object below a sink's path.

    Attributes:
        staged_by: checkpoint id and token that staged it; None for any other object.
        permanent: a reservation, or part of the format's log; never deleted by retention.
        list_of_garbage: a list of files to delete; it is deleted with the last of them.
    """

    stat: ObjectStat
    staged_by: tuple[CheckpointId, FencingToken] | None
    permanent: bool
    list_of_garbage: bool


@dataclass(frozen=True, slots=True)
class SinkChange:
    """What a table shows now, and what it would show after a move.

    Attributes:
        rows_now, rows_then: rows of the table. `rows_now` is None if the table is damaged, which may be the reason for
            the rollback.
        files_now, files_then: files that a reader opens.
        position: of the table now.
    """

    rows_now: int | None
    rows_then: int
    files_now: int
    files_then: int
    position: TablePosition


TableRead = tuple[OpenTable | None, TablePosition]
"""The open table, or None if it does not exist, and its position."""


class StagingSink(Protocol):
    """The part for tasks. Nothing they write is visible."""

    def stage_pieces(self, pieces: Iterable[RowsPiece], context: StagingContext) -> StagedRows:
        """Write rows durably, below the token's own prefix. There may be no pieces."""


class PreparingSink(StagingSink, Protocol):
    """The part for an epoch before its commit point. Nothing it does is visible."""

    def committable(self, staged: Iterable[StagedRows], schema: pa.Schema) -> Committable:
        """Collect what the subtasks staged, in subtask order."""

    def staged_table(self, committable: Committable) -> pa.Table:
        """Return the rows that the epoch would publish, for the quality gate. Raises StateCorrupt."""

    def reserve(self, identity: str, before_create: Callable[[], None] = lambda: None) -> None:
        """Reserve the table's location for this job, before anything is staged.

        Args:
            identity: of the job. A recreated job of the same name has another.
            before_create: called if there is no reservation yet; may raise.
        Raises: InvalidRequest: it is reserved for another job or sink, or with another mode, key or format.
        """

    def check_reservable(self, identity: str) -> None:
        """Raise what `reserve` would raise. Changes nothing.

        Args:
            identity: of the job; empty if it has not started.
        """

    def check_takeover(self, identity: str, job: str, view: TableView) -> None:
        """Refuse the takeover of another job's table that is not as in a savepoint. Changes nothing.

        Args:
            identity: of this job. job: name of the other job, whose sink has the same name. view: of its savepoint.
        Raises: InvalidRequest.
        """

    def is_taken_over(self, identity: str, view: TableView) -> bool:
        """Return whether this job owns the table and it shows the savepoint, as after `take_over`."""

    def take_over(self, identity: str, job: str, view: TableView, target: TableTarget) -> None:
        """Make this job the owner of another job's table. Later commits of the other job are refused.

        Args:
            target: the savepoint's contents, as contents of this job with the same files.
        Raises: InvalidRequest: as `check_takeover`. CommitOutcomeUnknown, StoreUnavailable: call again.
        """

    def owner(self) -> TableOwner | None:
        """Return the owner in the reservation; None if there is no reservation."""

    def bucket_files(self, base: TableContents | None, *, waits: bool) -> tuple[StagedFile, ...]:
        """Return the files that an epoch's subtasks merge their changes into, oldest first; () without buckets.

        Foreign rewrites since the base are included. Args and Raises as `prepare`.
        """

    def check_columns(self, schema: pa.Schema) -> None:
        """Refuse columns that a table of its format cannot hold. Contacts nothing. Raises InvalidRequest."""

    def belongs_to_other(self, identity: str) -> bool:
        """Return whether the table is reserved for another job or sink. Then nothing below its path is this job's."""

    def read_table(self) -> TableRead:
        """Return the table as it is now, and its position. Changes nothing."""

    def check_staged(self, committable: Committable) -> None:
        """Refuse staged files that are missing or have another size. `prepare` does not check. Raises StateCorrupt."""

    def prepare(
        self,
        committable: Committable,
        base: TableContents | None,
        *,
        waits: bool,
        read_table: Callable[[], TableRead] | None = None,
        before_change: Callable[[], None] = lambda: None,
    ) -> PreparedTable:
        """Fail for every reason known now (schema, owner, position), or return the checkpoint's change.

        Args:
            base: contents at the checkpoint that the epoch continues; None for the empty table.
            waits: older checkpoints have yet to move the table, so its position is not checked.
            read_table: returns the result of a prefetched read. None: read the table now.
            before_change: called before the table is created or claimed; may raise.
        Raises: InvalidRequest, StateCorrupt, StoreUnavailable: nothing was published.
        """

    def prepare_fork(self, committable: Committable, base: TableContents | None) -> PreparedTable:
        """Prepare an epoch on a fork. The table is not read, because a later switch moves it to the fork as a whole."""

    def abort(self, *, checkpoint_id: int, token: int, before_delete: Callable[[], None] = lambda: None) -> None:
        """Delete the staged files of an aborted checkpoint, or of a fenced token.

        Args:
            before_delete: called if there are such files; may raise.
        Raises: InvalidRequest: the table carries a mark that is not of this job. Nothing is deleted.
        """


class MovingSink(Protocol):
    """The table follows the manifest: completed epochs, and switches of the live timeline (I14)."""

    def prefetch_table(self) -> None:
        """Read the table, if the next `move` can use a recent read. Errors are ignored, because `move` reads again."""

    def position(self) -> TablePosition:
        """Return the table's position now."""

    def move(self, target: TableTarget, before_commit: Callable[[], None] = lambda: None) -> bool:
        """Make the table show the target, in one compare-and-set commit of its format.

        Args:
            before_commit: called before any write except the mark's record, which alone moves nothing. It may block;
                if it raises, the table is not moved.
        Returns: True if this call moved it; False if the table already carried that mark, or one that followed it.
        Raises:
            Superseded: the table carries a later mark that does not follow the target, or shows another checkpoint than
                the target follows. Nothing was moved; never retry.
            InvalidRequest: the table's position is unknown, a foreign commit changed the job's rows, or the table was
                recreated. The sink waits.
            StateCorrupt: a file is missing. CommitOutcomeUnknown: delete nothing, call again.
        """

    def check(self, contents: TableContents | None) -> None:
        """Refuse contents that the table cannot show.

        Raises: StateCorrupt: a file is missing. InvalidRequest: a column of the table has another type.
        """

    def fault(self, contents: TableContents | None) -> str | None:
        """Return why the table does not match the contents; None if it does. Foreign appends are no fault."""

    def compare(self, contents: TableContents | None) -> SinkChange:
        """Return what a move to the contents would change. Writes nothing. Raises StateCorrupt."""

    def undo_limits(self) -> tuple[str, ...]:
        """Return what a move cannot undo, one line each, for people."""


class ReadableSink(Protocol):
    """The part for readers: tables as of a checkpoint."""

    def table_view(self, contents: TableContents | None) -> TableView | None:
        """Return how the table shows the contents; None if no known mark has them. Raises StateCorrupt."""

    def stored_mode_and_key(self) -> tuple[SinkMode, tuple[str, ...]]:
        """Return the permanent mode and key of the table, which may differ from the spec.

        If the table does not exist yet, return those of the spec.
        """

    def files(self, contents: TableContents | None) -> tuple[StagedFile, ...]:
        """Return a table's files in commit order. Raises StateCorrupt."""

    def pieces(
        self, contents: TableContents, *, verify: bool = False, left_out: Collection[str] = ()
    ) -> Iterator[pa.Table]:
        """Yield a table's rows piece by piece; those of an upsert table in the order of the key.

        Args:
            verify: compare each file's SHA-256. left_out: keys of files to skip; not for an upsert table.
        Raises: StateCorrupt.
        """

    def read(self, contents: TableContents, *, verify: bool = False) -> pa.Table:
        """Return a table's rows, all in memory. Args, Raises: as `pieces`."""

    def verify(self, contents: TableContents, *, deep: bool = False) -> list[str]:
        """Return the problems of a table, one line each. `deep`: also compare SHA-256, rows and columns."""

    def import_key(self, file: StagedFile, number: int, *, checkpoint_id: int, token: int) -> str:
        """Return the key at which the n-th file of an imported table is staged, from 0. Raises InvalidRequest."""

    def stored_sizes(self, keys: Iterable[str]) -> dict[str, int]:
        """Return the sizes of the objects that exist, by key."""


class HousekeptSink(Protocol):
    """The part for retention: the objects below the table's path (I8)."""

    @property
    def store(self) -> ObjectStore:
        """The store, rooted at the table."""

    def objects(self) -> tuple[TableObject, ...]:
        """Return all objects below the path."""

    def marks(self, *, above: int) -> tuple[Mark, ...]:
        """Return the marks above a number. A commit in progress may carry one of them."""

    def delete_marks(self, *, below: int, kept: Collection[int] = ()) -> None:
        """Delete the marks below a number, except those that other tables of the sink carry."""

    def garbage(self) -> TableGarbage:
        """Return the lists of garbage files."""

    def maintain(self) -> None:
        """Shorten the format's log. If it fails, the next call tries again."""

    def probe(self) -> str:
        """Read the table, and return one line of findings. Changes nothing.

        Raises: EnvironmentUnusable, StoreUnavailable, InvalidRequest: what would keep an epoch from writing it.
        """


class Sink(PreparingSink, MovingSink, ReadableSink, HousekeptSink, Protocol):
    """One sink of the spec, opened on its store.

    Attributes:
        key: key columns of an upsert table; () for append.
    """

    name: str
    mode: SinkMode
    key: tuple[str, ...]

    @property
    def by_buckets(self) -> bool:
        """Whether the table consists of buckets, of which an epoch rewrites the changed ones."""
