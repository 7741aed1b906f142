"""A table format keeps a table's live files in a log of its own, which every engine that knows the format reads.

What moves a table is the same for all formats (`table_mover.py`): the difference between two contents, in one
commit that carries a number. A format is the thin edge below that: it opens the log, and commits by compare-and-set
on the very handle that was read. Nothing else of it is ever asked: what a table was at some checkpoint is in the
checkpoint (I14).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from milepost.sinks.records.committables import StagedFile
from milepost.sinks.records.reservation import TableOwner


@dataclass(frozen=True, slots=True)
class TableMove:
    """One commit: from the mark that a handle shows to another.

    Attributes:
        number: of the mark that the table carries afterwards; it rises with each move of ours (DESIGN 7).
        write_id: of the mark's record; by it a commit is recognised as our own when its answer is lost.
        added: files that become live. removed: live files that no longer are. No key is in both.
        schema: of the table, from before this commit: it is widened by a commit of its own.
        same_rows: keys of added and removed files that together hold the same rows before and after: engines that
            follow changes of the table are to see none there.
        checkpoint_id: that the table shows then; 0: the empty state. retained: the checkpoints that one can still go
            back to, for a format that names them to its readers; None: nobody said.
        before, after: all files that the table shows, in commit order, and is to show: for a format that keeps rows
            and no files. `before` is None where nobody knows, or where it is not to be trusted (a realignment).
    """

    number: int
    write_id: str
    added: tuple[StagedFile, ...]
    removed: tuple[StagedFile, ...]
    schema: pa.Schema
    same_rows: frozenset[str] = frozenset()
    checkpoint_id: int = 0
    retained: frozenset[int] | None = None
    before: tuple[StagedFile, ...] | None = None
    after: tuple[StagedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """A commit that was not ours, since our newest one; in `history` any commit.

    Attributes:
        version: of the format, for people. what: the operation, in the writer's words.
        removed: keys of files that it took out. added: files that it put in.
        keeps_rows: it says that it changed no rows (a compaction).
    """

    version: int
    what: str
    removed: frozenset[str]
    added: tuple[StagedFile, ...]
    keeps_rows: bool


class OpenTable(Protocol):
    """A table as one look at its log shows it; a commit compares with just that.

    Attributes:
        version: of the format, which each commit to the table changes, whoever makes it.
        table_id: the format's own identity of the table: one that is dropped and made anew has another.
        owner: whose it says that it is; None: nobody's.
        number: of the newest mark that it carries; 0 before the first. write_id: of that move; None before the first.
        schema: None before anything said what its columns are.
        readers_version: what it shows, as every reader of the format names it: Delta's version, Iceberg's snapshot.
            None: the format has no such name, or nothing is shown yet.
    """

    version: int
    readers_version: str | None
    table_id: str
    owner: TableOwner | None
    number: int
    write_id: str | None
    schema: pa.Schema | None

    def check(self, schema: pa.Schema | None) -> None:
        """Refuse a table that we cannot write: its features, its properties, or columns that it cannot hold.

        Args:
            schema: None: of the rows nothing is known yet.
        Raises: InvalidRequest, saying what to type.
        """

    def lacks(self, owner: TableOwner) -> Mapping[str, str]:
        """Return the properties that `claim` must set before we write: whose it is, and what our checkpoints need.

        Raises: InvalidRequest: what one of them says now is not understood, so nobody knows whether it is enough.
        """

    def claim(self, owner: TableOwner, properties: Mapping[str, str], mark: tuple[int, str] | None) -> None:
        """Make it this owner's, and set these, by a commit of its own that changes no rows.

        Args:
            mark: number and write id that it carries from then on; 0: a first one. None: the owner's, as before.
        Raises: as `commit`.
        """

    def check_keys(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> None:
        """Refuse rows of an epoch that would take the place of rows of others; of formats that check rows.

        Args:
            pieces: of the rows, each read when the one before it was seen. schema: their columns.
        Raises: InvalidRequest, saying what to type.
        """

    def rows_fault(self, files: Sequence[StagedFile]) -> str | None:
        """Say how the table's rows differ from those of its files; None: they do not, as far as the format can tell.

        Raises: StateCorrupt: a file is gone.
        """

    def live(self) -> Mapping[str, int] | None:
        """Return its live files, whoever added them: size in bytes by key, relative to the table's root.

        None: the format keeps no list of its own; what the mark says is live.
        """

    def foreign(self) -> tuple[ForeignCommit, ...]:
        """Return what others committed since our newest move, oldest first."""

    def history(self) -> tuple[ForeignCommit, ...]:
        """Return every commit that its log still has, ours among them, oldest first.

        What was there before the oldest of them was added by none.
        """

    def widen(self, schema: pa.Schema) -> None:
        """Add columns, all nullable, by a commit of its own that carries no number; the handle is then outdated.

        Raises: whatever it raises, the outcome is unknown until the table is opened again.
        """

    def commit(self, move: TableMove) -> None:
        """Make the move visible, atomically and only if the table still has this handle's version.

        Raises: CommitConflict, CommitOutcomeUnknown, StoreUnavailable: whichever, the outcome is unknown until the
            table is opened again: transports repeat requests, and our own success comes back as a conflict.
        """


class TableFormat(Protocol):
    """One table's place. Nothing is contacted before it is opened.

    Attributes:
        keeps_statistics: staged files carry the statistics of their columns, which engines skip files by.
        is_database: it keeps rows and no files, which lie in the job's storage; there are some that it cannot hold, so
            each epoch's are looked at (`check_rows`, `check_keys`).
        keeps_looks: `recent` returns the table that was opened a moment ago.
        log_prefix: below it, in the table's folder, lies the format's log, which is never garbage of ours.
        names_owner: others make such tables too, and one says in its own properties whose it is.
    """

    keeps_statistics: bool
    is_database: bool
    keeps_looks: bool
    log_prefix: str
    names_owner: bool

    def check_columns(self, schema: pa.Schema) -> None:
        """Refuse columns that no table of this format can hold; nothing is contacted. Raises InvalidRequest."""

    def open(self) -> OpenTable | None:
        """Return the table as it is now; None: there is none.

        Raises: InvalidRequest: what lies there is no table of this format. StoreUnavailable, EnvironmentUnusable.
        """

    def recent(self) -> OpenTable | None:
        """Return the table as it was seen a moment ago, for a commit, which finds out whether it still is so.

        None: it was not, or to open it asks for nothing but the table: open it.
        """

    def create(self, owner: TableOwner, schema: pa.Schema) -> None:
        """Make an empty table that is this owner's, atomically; somebody else's, made meanwhile, is left alone.

        Called before the commit point; open it again to see whose it became.
        """

    def check_rows(self, rows: pa.Table) -> None:
        """Refuse rows that no table of this format can hold; it contacts nothing.

        Raises: InvalidRequest, naming the column.
        """

    def probe(self) -> str:
        """Try what commits rely on at this place, leaving no trace; return in words what was found; "": nothing more.

        Raises: EnvironmentUnusable, StoreUnavailable: it cannot be relied on.
        """

    def maintain(self, retention_ms: int) -> None:
        """Keep the log short and readable, after a commit is confirmed: no retained checkpoint needs what it removes.

        Args:
            retention_ms: how far back engines may still look by the format's own means.
        """
