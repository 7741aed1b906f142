"""Dropped sinks have files in the job's own storage: their tables in databases were projections of them (I8).

Each later checkpoint carries on what the table of such a sink consists of, for the sink may come back; so that stays.
What no retained checkpoint names goes as files of every table go, by lists beside them. The table itself is not asked:
the spec does not say any more where it is. What it shows besides, it gives up without a file (`row_changes.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.table_references import (
    OpenedTable,
    TableNeeds,
    TableReference,
    TableShare,
    references,
    retained_chain,
)
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import sink_of_staged_file
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.contract import TableObject, TablePosition
from milepost.sinks.files.table_files import TableFiles
from milepost.sinks.records.committables import StagedFile
from milepost.sinks.records.contents import ContentsRecords, TableContents
from milepost.sinks.records.reservation import RESERVATION
from milepost.sinks.records.table_garbage import TableGarbage
from milepost.sinks.table.table_objects import table_objects


@dataclass(frozen=True, slots=True)
class DroppedFiles:
    """The files of one dropped sink, with as much of `Sink` as is asked of them. store: rooted at them."""

    name: str
    store: ObjectStore
    records: ContentsRecords

    def garbage(self) -> TableGarbage:
        return TableGarbage(self.store)

    def objects(self) -> tuple[TableObject, ...]:
        return table_objects(self.store, RESERVATION)

    def stored_sizes(self, keys: Iterable[str]) -> dict[str, int]:
        return TableFiles(self.name, self.store).stored_sizes(keys)

    def files(self, contents: TableContents | None) -> tuple[StagedFile, ...]:
        return self.records.files(contents)


@dataclass(frozen=True, slots=True)
class DroppedSink:
    """A sink that the spec has no more, or has elsewhere than in a database now; listed as an `OpenedTable` is."""

    name: str
    sink: DroppedFiles
    objects: tuple[TableObject, ...]

    @property
    def label(self) -> str:
        """What people call it."""
        return f"{self.name} (a table that the spec has no more)"

    def needs(self, state: ManifestState, shares: Mapping[CheckpointId, TableShare]) -> TableNeeds:
        """Find which files the retained checkpoints need: as an `OpenedTable` does, without asking the table."""
        files: dict[str, TableReference] = {}
        for checkpoint_id in sorted(shares):
            contents = shares[checkpoint_id].get(self.name)
            if contents is not None and contents.address.path is None:
                files.update(references(self.sink.files(contents), retained_chain(state, checkpoint_id)))
        return TableNeeds(files, (), None, TablePosition(0, None))


ListedTable = OpenedTable | DroppedSink
"""Whose files are looked at: both were listed before the state is read that they are judged by."""


def dropped_sinks(context: JobContext, keys: Iterable[str]) -> list[DroppedSink]:
    """List the sinks of which there are files in the job's own storage, and that the spec has in no database.

    Args:
        keys: that are stored.
    """
    there = {spec.name for spec in context.spec.sinks if spec.path is None}
    found = {sink_of_staged_file(key) for key in keys} - there
    dropped = []
    for name in sorted(one for one in found if one is not None):
        files = DroppedFiles(name, context.staged_files(name), context.table_records)
        dropped.append(DroppedSink(name, files, files.objects()))
    return dropped
