"""The place of a table that a sink is to begin may be another's: that is told before an epoch is opened for it."""

from __future__ import annotations

from collections.abc import Iterator

from milepost.epoch.metadata import CheckpointMetadata
from milepost.errors import CheckpointError
from milepost.jobmaster.job.context import JobContext

_NOT_BEGUN = ""


def check_new_tables(context: JobContext, base: CheckpointMetadata | None) -> None:
    """Refuse a sink's new table whose place is another's, or not to be had as the spec says.

    Raises: InvalidRequest: no epoch was opened.
    """
    for name in _new(context, base):
        context.sink(name).check_reservable(context.identity)


def refused_tables(context: JobContext, base: CheckpointMetadata | None) -> Iterator[CheckpointError]:
    """Why a run would be refused new tables now, or could not ask for them; also of a job that has not begun."""
    identity = context.identity if context.log.head() is not None else _NOT_BEGUN
    for name in _new(context, base):
        try:
            context.sink(name).check_reservable(identity)
        except CheckpointError as error:
            yield error


def _new(context: JobContext, base: CheckpointMetadata | None) -> list[str]:
    """The sinks whose tables the base checkpoint does not have."""
    return [sink.name for sink in context.spec.sinks if base is None or sink.name not in base.tables]
