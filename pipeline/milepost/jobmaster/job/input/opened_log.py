"""Open the log of a landed source at the position of a checkpoint."""

from __future__ import annotations

from milepost.epoch import CheckpointMetadata
from milepost.jobmaster.job.checks.landed_source_checks import require_declared_start, require_restored
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.false_rows import require_true_rows
from milepost.protocol.landed import LogPosition, StoredRecord, require_own_log
from milepost.storage.log import SourceLog


def open_log(
    context: JobContext, base: CheckpointMetadata | None, name: str
) -> tuple[SourceLog, LogPosition | None, StoredRecord | None]:
    """Return the log of a landed source, the position from which the base reads on, and its newest record.

    A base that has read nothing begins at the floor; None is the first record of a log that has no floor.

    Raises: SourceReplaced, InvalidRequest, StateCorrupt: the base cannot continue that log. InputVoided: it has read
        rows of the log that proved false.
    """
    log = context.source_log(name)
    position = None if base is None else base.log_position(log.stored_as)
    newest = log.newest()
    if newest is not None:
        require_own_log(name, newest.record.identity, context.identity)
        if position is None:
            require_restored(name, newest, context.recent_state())
            require_declared_start(context, log, newest)
    position = log.floor if position is None else position
    log.require_continues(position, newest)
    require_true_rows(context, base, log, newest)
    return log, position, newest
