"""Table references are what a table itself, and the retained checkpoints, need of its files (I8, I14).

What a checkpoint needs is what its contents list; what the table needs is what its mark lists, and every later mark's,
which a commit under way may name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.job_tables import JobTable
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.retention.pruning import may_be_listed
from milepost.sinks.contract import Sink, TableObject, TablePosition
from milepost.sinks.records.committables import StagedFile
from milepost.sinks.records.contents import TableContents, identity_of
from milepost.sinks.records.marks import Mark
from milepost.sinks.records.table_keys import staged_by


@dataclass(frozen=True, slots=True)
class TableReference:
    """One file that the table needs, at its head or as of some checkpoint.

    Attributes:
        chain: how it is reached, for people.
    """

    key: str
    size: int
    chain: tuple[str, ...]


TableShare = Mapping[str, TableContents]
"""What one retained checkpoint says of the sinks' tables, by sink: the `tables` of its metadata, without the rest."""


@dataclass(frozen=True, slots=True)
class TableNeeds:
    """Which files of a table are needed.

    Attributes:
        files: by key. marks: the table's own, and the later ones: they are roots of the job's storage.
        elsewhere: keys of files that are needed of a table of the sink at another place; who moved one here keeps it.
        unknown: why more may be needed, so that nothing of the table may go; None when this is all.
        position: where the table stands.
        led_away: that the spec leads elsewhere than the head has the table, and what to do; None: it does not.
    """

    files: Mapping[str, TableReference]
    marks: tuple[Mark, ...]
    unknown: str | None
    position: TablePosition
    elsewhere: frozenset[str] = frozenset()
    led_away: str | None = None

    def frees(self, state: ManifestState, key: str) -> bool:
        """Return whether a file below the table may be listed, and deleted, as needed by nothing.

        Nothing but a staged file ever may.
        """
        if key in self.files or key in self.elsewhere or self.unknown is not None:
            return False
        owner = staged_by(key)
        return owner is not None and may_be_listed(state, *owner)


@dataclass(frozen=True, slots=True)
class OpenedTable:
    """A table of the job, opened and listed before the state is read that it is judged by.

    Attributes:
        sink: opened for the table; asked for nothing else before that.
        objects: all that lie below its path.
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
        """Of its sink."""
        return self.table.sink

    @property
    def label(self) -> str:
        """What people call it."""
        return self.table.label

    def needs(self, state: ManifestState, shares: Mapping[CheckpointId, TableShare]) -> TableNeeds:
        """Find what the table and the retained checkpoints need.

        Args:
            state: read after the listing. shares: of every retained checkpoint of `state`.
        Raises: StateCorrupt: contents or a mark cannot be read. StoreUnavailable.
        """
        table, sink = self.table, self.sink
        here: dict[str, TableReference] = {}
        elsewhere: dict[str, TableReference] = {}
        position = sink.position()
        later = (mark for mark in sink.marks(above=position.number) if table.holds(mark.contents))
        marks = (*((position.mark,) if position.mark is not None else ()), *later)
        named: list[tuple[TableContents | None, tuple[str, ...]]] = [
            (shares[one].get(table.sink), retained_chain(state, one)) for one in sorted(shares)
        ]
        named += [(mark.contents, (f"mark {mark.number} of sink {table.sink}",)) for mark in marks]
        for contents, chain in named:
            if contents is not None and table.holds(contents):
                place = here if table.has_files_of(contents) else elsewhere
                place.update(references(sink.files(contents), chain))
        led_away = _led_away(state, shares, table)
        unknown = _not_shown(state, shares, table.sink, position) if table.in_force else _strange(table, position)
        return TableNeeds(here, marks, unknown or led_away, position, frozenset(elsewhere), led_away)


def _led_away(state: ManifestState, shares: Mapping[CheckpointId, TableShare], table: JobTable) -> str | None:
    """Return where the head has the table, when the spec leads elsewhere, and what to do; None when it does not."""
    head = state.head()
    contents = shares[head.checkpoint_id].get(table.sink) if head is not None else None
    if contents is None or not table.in_force or contents.location == table.location:
        return None
    return (
        f"its table was left elsewhere at checkpoint {contents.checkpoint_id}: {contents.address}; the spec leads to"
        f" another place: {table.address}. Write in the sink the lines of the table that it has, or give it a new name"
    )


def _strange(table: JobTable, position: TablePosition) -> str | None:
    """Return why a table that is not in force cannot be taken for this job's; None when it can."""
    if position.number and (position.mark is None or not table.holds(position.mark.contents)):
        return f"it is not in force any more, and its table shows {position}"
    return None


def references(files: Iterable[StagedFile], chain: tuple[str, ...]) -> dict[str, TableReference]:
    """Return files as they are reached by a chain, by key."""
    return {file.key: TableReference(file.key, file.size, chain) for file in files}


def retained_chain(state: ManifestState, checkpoint_id: CheckpointId) -> tuple[str, ...]:
    """Return how what a retained checkpoint names is reached."""
    return f"manifest version {state.version}", f"retained checkpoint {checkpoint_id}"


def _not_shown(
    state: ManifestState, shares: Mapping[CheckpointId, TableShare], name: str, position: TablePosition
) -> str | None:
    """Return why the table cannot be taken for this job's, as it stands; None when it shows the job's head.

    Until it does, a commit or a switch has yet to reach it. Or it has moved on: then another life or a copy of the job
    writes it, and it is needed by checkpoints that nobody here knows of.
    """
    head = state.head()
    if head is None:
        return "the job is at checkpoint 0, which no table proves to be its own"
    contents = shares[head.checkpoint_id].get(name)
    if contents is None:
        return f"checkpoint {head.checkpoint_id}, the head, has nothing of it"
    if not position.is_known or identity_of(position.contents) != contents:
        return f"its table does not show checkpoint {head.checkpoint_id} of timeline {state.live}, the job's head"
    return None
