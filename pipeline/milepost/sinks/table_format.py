"""The interface of a table format: open the table's log, and commit to it by compare-and-set.

A move is the same for all formats (`table_mover.py`): the difference between two contents, in one commit that carries a
number. A format opens the log, and commits on the handle that was read. What a table contained at a checkpoint is
recorded in the checkpoint, and never read from the log (I14).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from milepost.tables.records import StagedFile, TableOwner


@dataclass(frozen=True, slots=True)
class TableMove:
    """One commit, from the mark that a handle shows to the next.

    Attributes:
        number: of the new mark; it increases with each move of the job (DESIGN 7).
        write_id: of the mark's record; identifies the commit if its answer is lost.
        added: files that become live. removed: files that stop being live. No key is in both.
        schema: of the table before this commit. New columns get a commit of their own.
        same_rows: keys of added and removed files that hold the same rows before and after (a compaction). Readers of
            the change feed see no change there.
        checkpoint_id: the checkpoint that the table shows after the commit; 0 for the empty table.
        retained: the retained checkpoints, for a format that tags them for readers; None if not looked up.
        before, after: all files that the table shows before and after, in commit order, for a format that stores rows
            instead of files. `before` is None if it is unknown, or not to be trusted (a realignment).
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
    """A commit of another writer after the job's newest move; in `history`, any commit.

    Attributes:
        version: of the format, for people. operation: as its writer names it.
        removed: keys of removed files. added: added files.
        keeps_rows: whether it declares that it changed no rows (a compaction).
    """

    version: int
    operation: str
    removed: frozenset[str]
    added: tuple[StagedFile, ...]
    keeps_rows: bool


class OpenTable(Protocol):
    """A table as of one read of its log. A commit is compared against exactly that read.

    Attributes:
        version: of the format; every commit by any writer changes it.
        table_id: the format's identity of the table. A recreated table has another.
        owner: the owner in its properties; None if it is unowned.
        number: of the newest mark; 0 before the first. write_id: of that move; None before the first.
        schema: None while the table has no columns.
        readers_version: the version as readers name it: Delta's version, Iceberg's snapshot id. None if the format has
            no such name, or before the first snapshot.
    """

    version: int
    readers_version: str | None
    table_id: str
    owner: TableOwner | None
    number: int
    write_id: str | None
    schema: pa.Schema | None

    def check(self, schema: pa.Schema | None) -> None:
        """Refuse a table with unsupported features or properties, or one that cannot hold the columns.

        Args:
            schema: columns of the rows; None if not known yet.
        Raises: InvalidRequest, with the command to type.
        """

    def missing_properties(self, owner: TableOwner) -> Mapping[str, str]:
        """Return the properties that `claim` must set before the first write: the owner, and retention settings.

        Raises: InvalidRequest: a property has a value that cannot be parsed.
        """

    def claim(self, owner: TableOwner, properties: Mapping[str, str], mark: tuple[int, str] | None) -> None:
        """Set the owner and these properties, by a commit of its own that changes no rows.

        Args:
            mark: number and write id of the new mark, 0 for the first; None leaves the mark as it is.
        Raises: as `commit`.
        """

    def check_keys(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> None:
        """Refuse rows of an epoch that would overwrite foreign rows. Only formats that store rows check this.

        Args:
            pieces: the rows, read lazily. schema: their columns.
        Raises: InvalidRequest, with the command to type.
        """

    def rows_fault(self, files: Sequence[StagedFile]) -> str | None:
        """Return how the table's rows differ from those of its files; None if no difference can be detected.

        Raises: StateCorrupt: a file is missing.
        """

    def live_files(self) -> Mapping[str, int] | None:
        """Return the live files of all writers: size in bytes by key, relative to the table's root.

        None: the format has no list of its own; the files of the mark are live.
        """

    def foreign_commits(self) -> tuple[ForeignCommit, ...]:
        """Return the commits of other writers after the job's newest move, oldest first."""

    def history(self) -> tuple[ForeignCommit, ...]:
        """Return every commit that the log still has, including the job's own, oldest first.

        Files from before the oldest commit appear in none of them.
        """

    def widen(self, schema: pa.Schema) -> None:
        """Add nullable columns, by a commit of its own that carries no number. The handle is outdated afterwards.

        Raises: after any error the outcome is unknown until the table is opened again.
        """

    def commit(self, move: TableMove) -> None:
        """Publish the move atomically, and only if the table still has this handle's version.

        Raises: CommitConflict, CommitOutcomeUnknown, StoreUnavailable: after any of these the outcome is unknown until
            the table is opened again. Transports repeat requests, so a commit can conflict with itself.
        """


class TableFormat(Protocol):
    """A table at a location. Nothing is contacted before it is opened.

    Attributes:
        keeps_statistics: staged files carry column statistics, by which engines skip files.
        is_database: the table stores rows; the files are in the job's storage. It cannot hold every row, so each
            epoch's rows are checked (`check_rows`, `check_keys`).
        caches_reads: `recent` returns a recently opened table.
        log_prefix: prefix of the format's log below the table's root. Objects there are never garbage.
        stores_owner: other writers create such tables too, and the owner is in the table's properties.
    """

    keeps_statistics: bool
    is_database: bool
    caches_reads: bool
    log_prefix: str
    stores_owner: bool

    def check_columns(self, schema: pa.Schema) -> None:
        """Refuse columns that no table of this format can hold. Contacts nothing. Raises InvalidRequest."""

    def open(self) -> OpenTable | None:
        """Return the table as it is now; None if there is none.

        Raises: InvalidRequest: something else is at the location. StoreUnavailable, EnvironmentUnusable.
        """

    def recent(self) -> OpenTable | None:
        """Return the table as of a recent read, for a commit, which detects whether it has changed since.

        None: there is no recent read, or the format does not cache them. Call `open`.
        """

    def create(self, owner: TableOwner, schema: pa.Schema) -> None:
        """Create an empty table with this owner, atomically. A table that another writer creates first is left alone.

        Called before the commit point. Open the table afterwards to see its owner.
        """

    def check_rows(self, rows: pa.Table) -> None:
        """Refuse rows that no table of this format can hold. Contacts nothing.

        Raises: InvalidRequest, naming the column.
        """

    def probe(self) -> str:
        """Test what commits rely on at this location, without leaving a trace; return the findings as text, or "".

        Raises: EnvironmentUnusable, StoreUnavailable: commits would not be safe.
        """

    def maintain(self, retention_ms: int) -> None:
        """Shorten the log after a confirmed commit. No retained checkpoint needs what this removes.

        Args:
            retention_ms: how far back the format's own time travel must work.
        """
