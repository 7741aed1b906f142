"""Tables that a rollback takes up again: those from before a migration, or from after one that had been undone."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.dataflow.sinks.records.table_address import MIGRATED_FROM, TableAddress
from milepost.epoch.metadata import CheckpointMetadata
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import address_in_force


@dataclass(frozen=True, slots=True)
class OtherTable:
    """The table of a sink at the target, where it is not the one that the job has now.

    Attributes:
        now, then: where they are. undoes_migration: the one at the target is that from before it. spec_lines: what to
            write in the sink of the spec afterwards.
    """

    now: TableAddress
    then: TableAddress
    undoes_migration: bool
    spec_lines: tuple[str, ...]

    def __str__(self) -> str:
        """In words: what becomes of the sink, and what to do about its spec."""
        what = "migration undone: its table is again" if self.undoes_migration else "its table is again"
        return f"{what} that of {self.then}; afterwards write in the spec: {'; '.join(self.spec_lines)}"


def other_tables(
    context: JobContext, now: CheckpointMetadata | None, then: CheckpointMetadata | None
) -> dict[str, OtherTable]:
    """Return the sinks whose table at a checkpoint is another one than now."""
    found = {}
    for sink in context.spec.sinks:
        here = address_in_force(now, sink.name) or context.sink_address(sink.name)
        there = address_in_force(then, sink.name)
        if there is not None and there != here:
            undoes = there.format == MIGRATED_FROM
            found[sink.name] = OtherTable(here, there, undoes, there.spec_lines())
    return found
