"""Find the stored files of database sinks that are no longer in the spec (I8).

A table in a database is a projection of files in the job's own storage. Later checkpoints keep the contents of a
dropped sink, since the sink may return, so those files are retained. Files that no retained checkpoint names are pruned
like the files of any table. The table itself is not read, because the spec no longer says where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.tables.table_references import (
    OpenedTable,
    TableNeeds,
    TableReference,
    TableShare,
    references,
    retained_chain,
)
from milepost.protocol.records import CheckpointId, ManifestState, ObjectStore, sink_of_staged_file
from milepost.sinks import TableObject, TablePosition
from milepost.sinks.parquet_files import TableFiles
from milepost.sinks.table import table_objects
from milepost.tables.records import RESERVATION, ContentsRecords, StagedFile, TableContents, TableGarbage


@dataclass(frozen=True, slots=True)
class DroppedFiles:
    """The files of one dropped sink, with the part of `Sink` that pruning calls. store: rooted at the files."""

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
    """A sink that left the spec, or is no longer in a database; listed like an `OpenedTable`."""

    name: str
    sink: DroppedFiles
    objects: tuple[TableObject, ...]

    @property
    def label(self) -> str:
        """Its name in reports."""
        return f"{self.name} (a table that the spec has no more)"

    def needs(self, state: ManifestState, shares: Mapping[CheckpointId, TableShare]) -> TableNeeds:
        """Find which files the retained checkpoints need, like an `OpenedTable` but without reading the table."""
        files: dict[str, TableReference] = {}
        for checkpoint_id in sorted(shares):
            contents = shares[checkpoint_id].get(self.name)
            if contents is not None and contents.address.path is None:
                files.update(references(self.sink.files(contents), retained_chain(state, checkpoint_id)))
        return TableNeeds(files, (), None, TablePosition(0, None))


ListedTable = OpenedTable | DroppedSink
"""Both are listed before the state is read that decides what is needed."""


def list_dropped_sinks(context: JobContext, keys: Iterable[str]) -> list[DroppedSink]:
    """List the sinks that have files in the job's own storage but no database table in the spec.

    Args:
        keys: all stored keys.
    """
    database_sinks = {spec.name for spec in context.spec.sinks if spec.path is None}
    stored_sinks = {sink_of_staged_file(key) for key in keys} - database_sinks
    dropped = []
    for name in sorted(name for name in stored_sinks if name is not None):
        files = DroppedFiles(name, context.staged_files(name), context.table_records)
        dropped.append(DroppedSink(name, files, files.objects()))
    return dropped
