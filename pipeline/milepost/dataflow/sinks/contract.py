"""A sink is a two-phase participant of the checkpoint, with a chain of its own (I14).

Order: `stage` in the subtasks -> committables travel in the acks into `_metadata` -> `prepare` before the commit point
(everything that can fail for a known reason) -> complete (manifest) -> `commit` -> confirmation (manifest).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import pyarrow as pa

from milepost.protocol.records.errors import StateCorrupt
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.object_store import ObjectStat
from milepost.protocol.records.stored_fields import Count, StoredAs


def encode_schema(schema: pa.Schema) -> str:
    """Arrow IPC in base64, without metadata (which names libraries and would make equal schemas differ)."""
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode("ascii")


def decode_schema(text: str) -> pa.Schema:
    """Inverse of `encode_schema`. Raises StateCorrupt."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (ValueError, OSError, EOFError, pa.ArrowException) as error:  # binascii.Error is a ValueError
        raise StateCorrupt("a recorded schema is not an Arrow schema") from error


def schema_fault(text: str) -> str | None:
    """Say why a recorded text is no Arrow schema, or None."""
    try:
        decode_schema(text)
    except StateCorrupt as error:
        return error.message
    return None


SchemaText = Annotated[str, schema_fault]
"""An Arrow schema as `encode_schema` gives it."""

ArrowSchema = Annotated[pa.Schema, StoredAs(str, encode_schema, decode_schema)]
"""An Arrow schema, stored as that text."""


@dataclass(frozen=True, slots=True)
class SinkMark:
    """Where a sink stands: the checkpoint its visible content belongs to, and the mark before it.

    Attributes:
        timeline: of that checkpoint.
        checkpoint_id: 0 for the empty table before the first commit.
        predecessor: checkpoint id of the mark it followed, None for the first.
    """

    timeline: str
    checkpoint_id: int
    predecessor: int | None


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One file that a subtask staged; invisible until a commit names it.

    Attributes:
        key: relative to the sink's root; named by content hash below the epoch's token.
        rows, size: rows and bytes. sha256: hex of the content.
    """

    key: str
    rows: Count
    size: Count
    sha256: str


@dataclass(frozen=True, slots=True)
class Compaction:
    """One staged file that holds the whole table as this epoch leaves it, so that readers need nothing older.

    Attributes:
        file: staged below the epoch's token, like the epoch's own files.
        predecessor: checkpoint id of the content it was computed on (None: the empty table). It may only be
            committed on top of exactly that mark.
    """

    file: StagedFile
    predecessor: int | None


@dataclass(frozen=True, slots=True)
class Committable:
    """All staged files of one sink in one checkpoint, in subtask order, with the rows' schema (Arrow IPC, base64)."""

    sink: str
    files: tuple[StagedFile, ...]
    schema: SchemaText
    compaction: Compaction | None = None

    @property
    def rows(self) -> int:
        """Rows that this epoch publishes; a compaction's are not counted again."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class TableObject:
    """One object that lies below a sink's path.

    Attributes:
        staged_by: checkpoint id and token that staged it; None for anything else.
        permanent: part of what says what the table is; never deleted.
        snapshot_of: the head that a snapshot of the chain was written for; None for anything else.
        list_of_garbage: says which files may go; deleted with the last of them.
    """

    stat: ObjectStat
    staged_by: tuple[CheckpointId, FencingToken] | None
    permanent: bool
    snapshot_of: int | None = None
    list_of_garbage: bool = False


@dataclass(frozen=True, slots=True)
class TableReference:
    """One object that the table needs, at its head or as of some checkpoint.

    Attributes:
        chain: how it is reached, for people.
    """

    key: str
    size: int
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableWalk:
    """A table as it is stored.

    Attributes:
        objects: all that lie below the sink's path, listed before anything else was read.
        references: what the chain itself and the newest head need, each key once; older checkpoints may need more.
        published: every file that some head names, whether anything still needs it or not.
        listed: files that a list of garbage names. unreadable_lists: of each such list that cannot be read: its key
            and what is wrong; nothing that is needed depends on it.
        problems: what cannot be read, one line each; then `references` is not complete.
        heads: how many commits were read.
    """

    objects: tuple[TableObject, ...]
    references: tuple[TableReference, ...]
    published: frozenset[str]
    listed: frozenset[str]
    unreadable_lists: tuple[str, ...]
    problems: tuple[str, ...]
    heads: int


@dataclass(frozen=True, slots=True)
class SinkChange:
    """What a table shows now, and what it would show once it had followed a decision.

    Attributes:
        rows_now, rows_then: rows of the table; of now, None when it is damaged: that may be why it is to go back.
        files_now, files_then: files that a reader opens.
    """

    rows_now: int | None
    rows_then: int
    files_now: int
    files_then: int


@dataclass(frozen=True, slots=True)
class TableContents:
    """What a table consists of at one point.

    Attributes:
        files: its live files in commit order. schema: Arrow IPC, base64; None while nothing was ever published.
    """

    files: tuple[StagedFile, ...]
    schema: str | None


@dataclass(frozen=True, slots=True)
class RowsPiece:
    """Some of the rows that one subtask stages, in order.

    Attributes:
        distinct: whether no two of them are known to have the same key.
        part: rows of two parts, both above 0, never have the same key; 0 = nothing is known.
    """

    rows: pa.Table
    distinct: bool = False
    part: int = 0


class Sink(Protocol):
    """One sink of the spec, opened on its store."""

    name: str

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
        """The rows that this epoch would publish: what the quality gate sees. Raises StateCorrupt."""

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
        """Whether the table is reserved for another job or sink: then nothing below its path is this one's."""

    def compact(
        self, committable: Committable, *, predecessor: int | None, checkpoint_id: int, token: int
    ) -> Committable:
        """Stage what keeps the table from growing for ever, if it is time; else return the committable unchanged.

        Before the commit point, after the gate; what it returns replaces the committable. Changes nothing visible.
        """

    def commit(self, committable: Committable, mark: SinkMark) -> bool:
        """Compare-and-swap the sink's head from mark.predecessor, on mark.timeline, to mark.

        Returns: True when this call published it, False when it (or a descendant) was already there.
        Raises: Superseded when the head is neither the predecessor on that timeline, nor the mark, nor a descendant.
        """

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

    def check_follow(self, base: SinkMark | None, committables: Sequence[tuple[CheckpointId, Committable]]) -> None:
        """Raise now what `follow` would raise, the decision apart. Reads no rows, changes nothing."""

    def compare(self, base: SinkMark | None, committables: Sequence[tuple[CheckpointId, Committable]]) -> SinkChange:
        """What `follow` would change, without writing; raises what it would raise, the decision apart."""

    def contents(
        self, base: SinkMark | None, committables: Sequence[tuple[CheckpointId, Committable]]
    ) -> TableContents:
        """What the table would consist of after such a `follow`, without writing; raises as `compare`."""

    def import_key(self, file: StagedFile, number: int, *, checkpoint_id: int, token: int) -> str:
        """Where the n-th file of a table that comes from elsewhere is staged, from 0, so that a follow can name it."""

    def undo_limits(self) -> tuple[str, ...]:
        """What a follow cannot undo, one line each, for people."""

    def is_committed(self, mark: SinkMark) -> bool:
        """Whether the head is the mark or descends from it."""

    def head(self) -> SinkMark | None:
        """The current mark; None before the first commit."""

    def as_it_stands(self) -> Sink:
        """This sink for one look: its newest head is read once, but for a commit or a follow, which read it anew."""

    def find(self, checkpoint_id: int) -> SinkMark | None:
        """The newest mark of that checkpoint in the table's whole history, lineages that were left included."""

    def abort(self, *, checkpoint_id: int, token: int) -> None:
        """Delete what this epoch staged, if and only if no head of any lineage refers to it."""

    def read(self, checkpoint_id: int | None = None, *, verify: bool = False) -> pa.Table:
        """The published table at the head, or as of a checkpoint of its history. Raises NotFound, StateCorrupt."""

    def verify(self, checkpoint_id: int | None = None, *, deep: bool = False) -> list[str]:
        """Problems of the published table, one line each; [] when everything it refers to is there and whole."""

    def walk(self) -> TableWalk:
        """Everything below the path, and what the chain and its newest head need. Raises InvalidRequest."""

    def stored_sizes(self, keys: Iterable[str]) -> dict[str, int]:
        """The sizes of those of these objects that exist now, by key."""
