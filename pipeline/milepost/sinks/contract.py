"""A sink is a two-phase participant of the checkpoint, whose table moves with the decisions of the manifest (I14).

Order: `stage` in the subtasks -> committables travel in the acks -> `prepare` before the commit point (everything that
can fail for a known reason), which says what the checkpoint's contents are -> complete (manifest) -> `move` ->
confirmation (manifest).

The contract stands in parts, by who needs what: tasks stage, the epoch prepares, leadership moves, reports read,
retention keeps house. A sink is all of them; `build.py` makes one from its spec.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import pyarrow as pa

from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.object_store import ObjectStat, ObjectStore
from milepost.sinks.records.committables import (
    Committable,
    RowsPiece,
    SchemaText,
    StagedFile,
    StagedRows,
    encode_schema,
)
from milepost.sinks.records.contents import ContentsChange, TableContents
from milepost.sinks.records.marks import Mark
from milepost.sinks.records.reservation import TableOwner
from milepost.sinks.records.staging_context import StagingContext
from milepost.sinks.records.table_garbage import TableGarbage
from milepost.sinks.records.table_view import TableView
from milepost.sinks.table_format import OpenTable


class SinkMode(Enum):
    """APPEND: every row stays. UPSERT: the table holds the latest row per key. CHANGELOG: every change is a row."""

    APPEND = "append"
    UPSERT = "upsert"
    CHANGELOG = "changelog"


@dataclass(frozen=True, slots=True)
class TablePosition:
    """Where a table stands at one look.

    Attributes:
        number: of the mark that it carries; 0: it carries none.
        mark: None where the number is 0, or where the job knows nothing of it: then another writer, or a copy of the
            job, moved the table, or an old state of it was restored.
        readers_version: as `OpenTable` has it.
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
        """The checkpoint that it shows; 0 for the empty table."""
        return 0 if self.mark is None else self.mark.checkpoint_id

    @property
    def contents(self) -> TableContents | None:
        """What it consists of; None: nothing, as far as is known."""
        return None if self.mark is None else self.mark.contents

    def __str__(self) -> str:
        """In words that can be compared."""
        if not self.number:
            return "nothing yet"
        if self.mark is None:
            return f"mark {self.number}, which is not of this job"
        return f"checkpoint {self.mark.checkpoint_id} of timeline {self.mark.timeline}"


@dataclass(frozen=True, slots=True)
class TableTarget:
    """Where a transition of the manifest puts a table.

    Attributes:
        number: manifest version of the transition. timeline: the live one since then.
        contents: what the table is to consist of; None: nothing.
        follows: the checkpoint that it must show before, 0 for the empty table: an epoch adds to just that one. None:
            whatever it shows (a switch of the live timeline).
        realigns: also when nobody knows what it shows: somebody has decided so.
        retained: checkpoints that are retained as the manifest has it; None: not looked up.
    """

    number: int
    timeline: str
    contents: TableContents | None
    follows: int | None = None
    realigns: bool = False
    retained: frozenset[int] | None = None

    @property
    def checkpoint_id(self) -> int:
        """The checkpoint that the table shows then; 0 for the empty table."""
        return 0 if self.contents is None else self.contents.checkpoint_id


@dataclass(frozen=True, slots=True)
class PreparedTable:
    """What an epoch does to a table.

    Attributes:
        change: to its files. schema, files, rows: of the table afterwards.
        table_id: None: nobody has seen the table yet (a fork).
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
        """Return what a change does to a table of these files."""
        files = change.applied_to(recorded)
        return cls(change, encode_schema(schema), len(files), sum(file.rows for file in files), table_id)


@dataclass(frozen=True, slots=True)
class TableObject:
    """One object that lies below a sink's path.

    Attributes:
        staged_by: checkpoint id and token that staged it; None for anything else.
        permanent: part of what says what the table is, or of the format's log; never deleted by us.
        list_of_garbage: says which files may go; deleted with the last of them.
    """

    stat: ObjectStat
    staged_by: tuple[CheckpointId, FencingToken] | None
    permanent: bool
    list_of_garbage: bool


@dataclass(frozen=True, slots=True)
class SinkChange:
    """What a table shows now, and what it would show after a move.

    Attributes:
        rows_now, rows_then: rows of the table; of now, None when it is damaged: that may be why it is to go back.
        files_now, files_then: files that a reader opens.
        position: where the table stands now.
    """

    rows_now: int | None
    rows_then: int
    files_now: int
    files_then: int
    position: TablePosition


TableRead = tuple[OpenTable | None, TablePosition]
"""A table as it is, None where there is none, and where it stands."""


class StagingSink(Protocol):
    """What tasks need: nothing of it is visible."""

    def stage_pieces(self, pieces: Iterable[RowsPiece], context: StagingContext) -> StagedRows:
        """Write rows durably, below the token's own prefix; called without any, too."""


class PreparingSink(StagingSink, Protocol):
    """What the epoch makes of staged files before its commit point; nothing of it is visible."""

    def committable(self, staged: Iterable[StagedRows], schema: pa.Schema) -> Committable:
        """Collect what the subtasks staged, in subtask order."""

    def staged_table(self, committable: Committable) -> pa.Table:
        """Return the rows that this epoch would publish: what the quality gate sees. Raises StateCorrupt."""

    def reserve(self, identity: str, before_create: Callable[[], None] = lambda: None) -> None:
        """Make a new table this job's, before anything is staged for it.

        Args:
            identity: of the job, not its name: a job made anew is another.
            before_create: is called where nobody has reserved it; what it raises leaves it so.
        Raises: InvalidRequest: it is reserved for another job or sink, or made with another mode, key or format.
        """

    def check_reservable(self, identity: str) -> None:
        """Refuse what `reserve` would refuse now. Changes nothing.

        Args:
            identity: of the job; empty: it has not begun.
        Raises: as `reserve`.
        """

    def check_takeover(self, identity: str, job: str, shown: TableView) -> None:
        """Refuse to take over another job's table that is not as a savepoint shows it. Changes nothing.

        Args:
            identity: of this job. job: the other's name, whose sink has this one's name. shown: by its savepoint.
        Raises: InvalidRequest.
        """

    def is_taken_over(self, identity: str, shown: TableView) -> bool:
        """Return whether the table is this job's and shows what a savepoint has, as after `take_over`."""

    def take_over(self, identity: str, job: str, shown: TableView, target: TableTarget) -> None:
        """Make another job's table this one's, as it is: from then on the other's commits are refused.

        Args:
            target: what the savepoint shows, as contents of this job whose files are those of the table.
        Raises: InvalidRequest: as `check_takeover`. CommitOutcomeUnknown, StoreUnavailable: do it again.
        """

    def owner(self) -> TableOwner | None:
        """Return for whom the table is reserved; None: for nobody."""

    def bucket_files(self, base: TableContents | None, *, waits: bool) -> tuple[StagedFile, ...]:
        """Return the files on which an epoch's subtasks build, oldest first; of a table without buckets none.

        What engines rewrote since the base counts as they left it. Args and Raises as `prepare`.
        """

    def check_columns(self, schema: pa.Schema) -> None:
        """Refuse columns that a table of its format cannot hold; nothing is contacted. Raises InvalidRequest."""

    def belongs_to_other(self, identity: str) -> bool:
        """Return whether the table is reserved for another job or sink: then nothing below its path is this one's."""

    def read_table(self) -> TableRead:
        """Return the table as it is, and where it stands; nothing is changed."""

    def check_staged(self, committable: Committable) -> None:
        """Refuse staged files that are missing or have another size: `prepare` does not. Raises StateCorrupt."""

    def prepare(
        self,
        committable: Committable,
        base: TableContents | None,
        *,
        waits: bool,
        read_table: Callable[[], TableRead] | None = None,
        before_change: Callable[[], None] = lambda: None,
    ) -> PreparedTable:
        """Fail now for every reason known now (schema, owner, position); return the checkpoint's change.

        Args:
            base: contents at the checkpoint that the epoch continues; None: the empty table.
            waits: older checkpoints have yet to move the table, so where it stands says nothing.
            look: gives one that was begun a moment ago. None: the table is looked at now.
            before_change: is called before the table is made or claimed; may raise.
        Raises: InvalidRequest, StateCorrupt, StoreUnavailable: nothing was published.
        """

    def prepare_fork(self, committable: Committable, base: TableContents | None) -> PreparedTable:
        """As `prepare`, on a fork: the table does not matter, because the fork moves it as a whole, later."""

    def abort(self, *, checkpoint_id: int, token: int, before_delete: Callable[[], None] = lambda: None) -> None:
        """Delete what an epoch staged that the manifest says is aborted, or whose token lost.

        Args:
            before_delete: is called where something of it is there; what it raises leaves it there.
        Raises: InvalidRequest: the table carries a mark that is not of this job: nothing is deleted.
        """


class MovingSink(Protocol):
    """The table follows the manifest: completed epochs, and switches of the live timeline (I14)."""

    def prefetch_table(self) -> None:
        """Look at the table, if its next `move` can take a look of a moment ago; one that fails is repeated there."""

    def position(self) -> TablePosition:
        """Return where the table stands now."""

    def move(self, target: TableTarget, before_commit: Callable[[], None] = lambda: None) -> bool:
        """Let the table show a target, in one commit of its format: compare-and-set on what it shows.

        Args:
            before_commit: asked before anything is written but the record of the mark, which by itself moves nothing;
                it may wait, and what it raises keeps the table as it is.
        Returns: True when this call did it; False when the table carried that mark, or one that came after it, before.
        Raises:
            Superseded: it carries a later mark that did not come after the target, or shows another checkpoint than
                the target follows; nothing was moved, never retry.
            InvalidRequest: nobody knows what it shows, others changed our rows, or it was made anew: the sink waits.
            StateCorrupt: a file is gone. CommitOutcomeUnknown: delete nothing, call again.
        """

    def check(self, contents: TableContents | None) -> None:
        """Refuse contents that the table cannot show.

        Raises: StateCorrupt: a file is gone. InvalidRequest: a column of the table has another type.
        """

    def fault(self, contents: TableContents | None) -> str | None:
        """Say why the table is not as these contents, or None; what others appended is no fault."""

    def compare(self, contents: TableContents | None) -> SinkChange:
        """Return what a move to these contents would change, without writing. Raises StateCorrupt."""

    def undo_limits(self) -> tuple[str, ...]:
        """Return what a move cannot undo, one line each, for people."""


class ReadableSink(Protocol):
    """Tables as checkpoints name them."""

    def table_view(self, contents: TableContents | None) -> TableView | None:
        """Return how the table shows contents; None: it never did, as far as the job knows. Raises StateCorrupt."""

    def stored_mode_and_key(self) -> tuple[SinkMode, tuple[str, ...]]:
        """Return mode and key of the existing table. They are permanent, even if the spec now has others.

        Of a table that does not exist yet, those of the spec.
        """

    def files(self, contents: TableContents | None) -> tuple[StagedFile, ...]:
        """Return a table's files in commit order. Raises StateCorrupt."""

    def pieces(
        self, contents: TableContents, *, verify: bool = False, left_out: Collection[str] = ()
    ) -> Iterator[pa.Table]:
        """Yield a table's rows, some at a time; the latest rows of keys in their order.

        Args:
            verify: compare each file's SHA-256. left_out: files that are not read, of a table whose rows all stay.
        Raises: StateCorrupt.
        """

    def read(self, contents: TableContents, *, verify: bool = False) -> pa.Table:
        """Return a table's rows, all in memory. Args, Raises: as `pieces`."""

    def verify(self, contents: TableContents, *, deep: bool = False) -> list[str]:
        """Problems of a table, one line each; [] when everything it refers to is there and whole."""

    def import_key(self, file: StagedFile, number: int, *, checkpoint_id: int, token: int) -> str:
        """Where the n-th file of a table that comes from elsewhere is staged, from 0."""

    def stored_sizes(self, keys: Iterable[str]) -> dict[str, int]:
        """Return the sizes of those of these objects that exist now, by key."""


class HousekeptSink(Protocol):
    """All that lies below the table's path (I8)."""

    @property
    def store(self) -> ObjectStore:
        """Rooted at the table: its files lie at their keys."""

    def objects(self) -> tuple[TableObject, ...]:
        """Return all objects below the path."""

    def marks(self, *, above: int) -> tuple[Mark, ...]:
        """Return the marks above a number: what a commit under way may name."""

    def delete_marks(self, *, below: int, kept: Collection[int] = ()) -> None:
        """Delete the marks that the table is beyond, but for those that other tables of the sink carry."""

    def garbage(self) -> TableGarbage:
        """Return the lists of files that nothing needs any more."""

    def maintain(self) -> None:
        """Keep the format's log short; a fault of it is the next time's."""

    def probe(self) -> str:
        """Ask for the table now, and say in one line what was found; nothing of the table is made or changed.

        Raises: EnvironmentUnusable, StoreUnavailable, InvalidRequest: what keeps an epoch from writing it.
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
        """Whether its table is files of key groups, of which an epoch writes the changed ones again."""
