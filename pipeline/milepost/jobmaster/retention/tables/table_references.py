"""Find which files of a table are needed by the table itself or a retained checkpoint (I8, I14).

A checkpoint needs the files in its contents. The table needs the files of its current mark and of every later mark,
which a commit in progress may be about to show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.tables.tables_of_job import JobTable
from milepost.protocol.records import CheckpointId, ManifestState
from milepost.protocol.retention import may_be_listed
from milepost.sinks import Sink, TableObject, TablePosition
from milepost.tables.records import Mark, StagedFile, TableContents, identity_of, staged_by


@dataclass(frozen=True, slots=True)
class TableReference:
    """One file that the table needs, at its head or as of some checkpoint.

    Attributes:
        chain: of references, for people.
    """

    key: str
    size: int
    chain: tuple[str, ...]


TableShare = Mapping[str, TableContents]
"""The table contents of one retained checkpoint, by sink: the `tables` of its metadata."""


@dataclass(frozen=True, slots=True)
class TableNeeds:
    """Which files of a table are needed.

    Attributes:
        files: needed at the table's location, by key.
        marks: the current one and the later ones. They are roots of the job's storage.
        elsewhere_keys: files that are needed at another location of the table. If a person moved them here, they stay.
        unknown: why more files may be needed, so that none may be deleted; None if this is all.
        position: the table's current position.
        location_mismatch: how the spec's location differs from the head's, and what to do; None if it does not.
    """

    files: Mapping[str, TableReference]
    marks: tuple[Mark, ...]
    unknown: str | None
    position: TablePosition
    elsewhere_keys: frozenset[str] = frozenset()
    location_mismatch: str | None = None

    def is_free(self, state: ManifestState, key: str) -> bool:
        """Return whether a file below the table may be listed and deleted. Only staged files ever are."""
        if key in self.files or key in self.elsewhere_keys or self.unknown is not None:
            return False
        owner = staged_by(key)
        return owner is not None and may_be_listed(state, *owner)


@dataclass(frozen=True, slots=True)
class OpenedTable:
    """A table of the job, listed before the state that determines the required files is read.

    Attributes:
        sink: opened for the table. Its position must not be read before the state.
        objects: everything below the table's path.
    """

    table: JobTable
    sink: Sink
    objects: tuple[TableObject, ...]

    @classmethod
    def of(cls, context: JobContext, table: JobTable) -> OpenedTable:
        """Open and list a table now."""
        sink = table.open(context)
        return cls(table, sink, sink.objects())

    @property
    def name(self) -> str:
        """The name of its sink."""
        return self.table.sink

    @property
    def label(self) -> str:
        """Its name in reports."""
        return self.table.label

    def needs(self, state: ManifestState, shares: Mapping[CheckpointId, TableShare]) -> TableNeeds:
        """Find what the table and the retained checkpoints need.

        Args:
            state: read after the listing. shares: of every retained checkpoint of `state`.
        Raises: StateCorrupt: contents or a mark cannot be read. StoreUnavailable.
        """
        table, sink = self.table, self.sink
        here: dict[str, TableReference] = {}
        elsewhere_keys: dict[str, TableReference] = {}
        position = sink.position()
        later = (mark for mark in sink.marks(above=position.number) if table.holds(mark.contents))
        marks = (*((position.mark,) if position.mark is not None else ()), *later)
        named: list[tuple[TableContents | None, tuple[str, ...]]] = [
            (shares[one].get(table.sink), retained_chain(state, one)) for one in sorted(shares)
        ]
        named += [(mark.contents, (f"mark {mark.number} of sink {table.sink}",)) for mark in marks]
        for contents, chain in named:
            if contents is not None and table.holds(contents):
                place = here if table.has_files_of(contents) else elsewhere_keys
                place.update(references(sink.files(contents), chain))
        location_mismatch = _location_mismatch(state, shares, table)
        unknown = (
            _head_mismatch(state, shares, table.sink, position)
            if table.is_current
            else _unfamiliar_position(table, position)
        )
        return TableNeeds(
            here, marks, unknown or location_mismatch, position, frozenset(elsewhere_keys), location_mismatch
        )


def _location_mismatch(state: ManifestState, shares: Mapping[CheckpointId, TableShare], table: JobTable) -> str | None:
    """Return the table's location at the head if the spec's differs, and what to do; None if they are the same."""
    head = state.head()
    contents = shares[head.checkpoint_id].get(table.sink) if head is not None else None
    if contents is None or not table.is_current or contents.location == table.location:
        return None
    return (
        f"its table at checkpoint {contents.checkpoint_id} is {contents.address}, but the spec says"
        f" {table.address}. In the spec, set the sink back to its table, or give the sink a new name"
    )


def _unfamiliar_position(table: JobTable, position: TablePosition) -> str | None:
    """Return why an orphan table may no longer belong to this job; None if it does."""
    if position.number and (position.mark is None or not table.holds(position.mark.contents)):
        return f"it is not the sink's current table, and it shows {position}"
    return None


def references(files: Iterable[StagedFile], chain: tuple[str, ...]) -> dict[str, TableReference]:
    """Return references to files, by key, all with the same chain."""
    return {file.key: TableReference(file.key, file.size, chain) for file in files}


def retained_chain(state: ManifestState, checkpoint_id: CheckpointId) -> tuple[str, ...]:
    """Return the chain of references to the objects of a retained checkpoint."""
    return f"manifest version {state.version}", f"retained checkpoint {checkpoint_id}"


def _head_mismatch(
    state: ManifestState, shares: Mapping[CheckpointId, TableShare], name: str, position: TablePosition
) -> str | None:
    """Return why it is unknown what the table needs; None if the table shows the job's head.

    If it does not, a commit or a switch has not reached it yet. Or another copy of the job has moved it on, whose
    checkpoints this job cannot know.
    """
    head = state.head()
    if head is None:
        return "the job is at checkpoint 0, so no table proves that it belongs to the job"
    contents = shares[head.checkpoint_id].get(name)
    if contents is None:
        return f"checkpoint {head.checkpoint_id}, the head, has no contents of it"
    if not position.is_known or identity_of(position.contents) != contents:
        return f"its table does not show checkpoint {head.checkpoint_id} of timeline {state.live}, the job's head"
    return None
