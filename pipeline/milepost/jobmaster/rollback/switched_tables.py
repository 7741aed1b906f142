"""Find sinks with a different table at a rollback target, because of a migration."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from milepost.epoch import CheckpointMetadata
from milepost.errors import StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import contents_at, head_address
from milepost.jobmaster.leadership.table_previews import SINK_UNAVAILABLE
from milepost.tables.records import TableAddress


@dataclass(frozen=True, slots=True)
class SwitchedTable:
    """The table of a sink at the target, if it is not the table that the job has now.

    Attributes:
        now, then: the addresses of the two tables.
        undoes_migration: the target's table is a managed Parquet table, and the current one is not.
        spec_lines: what to write in the sink's part of the spec after the rollback.
    """

    now: TableAddress
    then: TableAddress
    undoes_migration: bool
    spec_lines: tuple[str, ...]

    def __str__(self) -> str:
        """What becomes of the sink, and how to change the spec, as text."""
        what = "migration undone: its table is again" if self.undoes_migration else "its table is again"
        return f"{what} that of {self.then}; after the rollback write in the spec: {'; '.join(self.spec_lines)}"


def find_switched_tables(
    context: JobContext, now: CheckpointMetadata | None, then: CheckpointMetadata | None
) -> dict[str, SwitchedTable]:
    """Return the sinks that had another table at `then` than now."""
    switched = {}
    for sink in context.spec.sinks:
        current = head_address(now, sink.name) or context.sink_address(sink.name)
        target = head_address(then, sink.name)
        if target is not None and target != current:
            undoes = target.sink_format.is_managed and not current.sink_format.is_managed
            switched[sink.name] = SwitchedTable(current, target, undoes, target.spec_lines())
    return switched


def abandoned_table_size(
    context: JobContext, now: CheckpointMetadata | None, name: str, others: Collection[str]
) -> tuple[int | None, int] | None:
    """Return rows and files of the table that a sink would leave for another; None if it keeps its table.

    Rows are None if the table does not answer or is damaged, which may be the reason for the rollback.
    """
    contents = contents_at(context, now, name) if name in others else None
    if contents is None:
        return None
    try:
        return context.sink(name, contents.address).compare(contents).rows_then, contents.files
    except (StateCorrupt, *SINK_UNAVAILABLE):
        return None, contents.files
