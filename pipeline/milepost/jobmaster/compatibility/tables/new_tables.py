"""Check, before an epoch starts, that sinks can create their new tables."""

from __future__ import annotations

from collections.abc import Iterator

from milepost.epoch import CheckpointMetadata
from milepost.errors import CheckpointError
from milepost.jobmaster.job.context import JobContext

_NO_IDENTITY = ""


def check_new_tables(context: JobContext, base: CheckpointMetadata | None) -> None:
    """Refuse a new table at a location that belongs to another sink, or cannot be used as the spec says.

    Raises: InvalidRequest: no epoch was started.
    """
    for name in _sinks_without_table(context, base):
        context.sink(name).check_reservable(context.identity)


def refused_tables(context: JobContext, base: CheckpointMetadata | None) -> Iterator[CheckpointError]:
    """Yield why a run could not create its new tables now; works for a job that has never run, too."""
    identity = context.identity if context.log.head() is not None else _NO_IDENTITY
    for name in _sinks_without_table(context, base):
        try:
            context.sink(name).check_reservable(identity)
        except CheckpointError as error:
            yield error


def _sinks_without_table(context: JobContext, base: CheckpointMetadata | None) -> list[str]:
    """Return the sinks that have no table in the base checkpoint."""
    return [sink.name for sink in context.spec.sinks if base is None or sink.name not in base.tables]
