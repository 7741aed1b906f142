"""Files of sinks that left the spec, in the job's own storage: their tables in databases are projections of them (I8).

Each later checkpoint carries on what the table of such a sink consists of, for the sink may come back; so that stays.
What no retained checkpoint names goes as files of every table go, by lists beside them. The table itself is not asked:
the spec does not say any more where it is. What it shows besides, it gives up without a file (`row_changes.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from milepost.dataflow.sinks.contract import TableObject, TablePosition
from milepost.dataflow.sinks.files.table_files import TableFiles
from milepost.dataflow.sinks.records.reservation import RESERVATION
from milepost.dataflow.sinks.records.table_garbage import TableGarbage
from milepost.dataflow.sinks.table.table_objects import table_objects
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.table_references import TableNeeds, TableReference, TableShare, references
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import sink_of_staged_file
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.records.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class LeftFiles:
    """The files of one sink that left. store: rooted at them."""

    sink: str
    store: ObjectStore

    def garbage(self) -> TableGarbage:
        """Return the lists of those that nothing needs."""
        return TableGarbage(self.store)

    def objects(self) -> tuple[TableObject, ...]:
        """Return all objects of them."""
        return table_objects(self.store, RESERVATION)

    def stored_sizes(self, keys: Iterable[str]) -> dict[str, int]:
        """As `ReadableSink` has it."""
        return TableFiles(self.sink, self.store).stored_sizes(keys)


@dataclass(frozen=True, slots=True)
class LeftSink:
    """A sink that left the spec, or whose table is in no database any more by it."""

    sink: str

    @property
    def label(self) -> str:
        """What people call it."""
        return f"{self.sink} (a table that the spec has no more)"

    def open(self, context: JobContext) -> LeftFiles:
        """Return its files."""
        return LeftFiles(self.sink, context.staged_files(self.sink))


def left_sinks(context: JobContext, keys: Iterable[str]) -> tuple[LeftSink, ...]:
    """Return the sinks of which there are files in the job's own storage, and that the spec has in no database.

    Args:
        keys: that are stored.
    """
    there = {spec.name for spec in context.spec.sinks if spec.path is None}
    found = {sink_of_staged_file(key) for key in keys} - there
    return tuple(LeftSink(name) for name in sorted(one for one in found if one is not None))


def left_needs(
    context: JobContext, state: ManifestState, shares: Mapping[CheckpointId, TableShare], left: LeftSink
) -> TableNeeds:
    """Find which files the retained checkpoints need of a sink that left.

    Args:
        state: read after the files were listed. shares: of every retained checkpoint of `state`.
    Raises: StateCorrupt: contents cannot be read. StoreUnavailable.
    """
    files: dict[str, TableReference] = {}
    for checkpoint_id in sorted(shares):
        contents = shares[checkpoint_id].get(left.sink)
        if contents is not None and contents.address.path is None:
            chain = (f"manifest version {state.version}", f"retained checkpoint {checkpoint_id}")
            files.update(references(context.table_records.files(contents), chain))
    return TableNeeds(files, (), None, TablePosition(0, None))
