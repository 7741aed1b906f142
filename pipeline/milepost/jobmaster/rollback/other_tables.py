"""Tables that a rollback takes up again: those from before a migration, or from after one that had been undone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from milepost.epoch.metadata import CheckpointMetadata
from milepost.errors import StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import contents_at, head_address
from milepost.jobmaster.leadership.table_previews import SINK_UNAVAILABLE
from milepost.sinks.records.table_address import OWN_FORMAT, TableAddress


@dataclass(frozen=True, slots=True)
class OtherTable:
    """The table of a sink at the target, where it is not the one that the job has now.

    Attributes:
        now, then: where they are. undoes_migration: the one at the target alone is of our own format. spec_lines: what
            to write in the sink of the spec afterwards.
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
        here = head_address(now, sink.name) or context.sink_address(sink.name)
        there = head_address(then, sink.name)
        if there is not None and there != here:
            undoes = there.format == OWN_FORMAT != here.format
            found[sink.name] = OtherTable(here, there, undoes, there.spec_lines())
    return found


def leaves(
    context: JobContext, now: CheckpointMetadata | None, name: str, others: Collection[str]
) -> tuple[int | None, int] | None:
    """Return rows and files of the table that a sink would leave for another; None: it stays with its own.

    Rows are None where the table is damaged, which may be why it is to go back, or does not answer.
    """
    contents = contents_at(context, now, name) if name in others else None
    if contents is None:
        return None
    try:
        return context.sink(name, contents.address).compare(contents).rows_then, contents.files
    except (StateCorrupt, *SINK_UNAVAILABLE):
        return None, contents.files
