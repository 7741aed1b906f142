"""Shared steps of approving a gap or a void record in a log that must not have moved."""

from __future__ import annotations

from milepost.errors import NotFound, PlanOutdated
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.landing.landings import require_landed, require_log_of_head
from milepost.jobmaster.landing.lost_positions import reason_of_loss
from milepost.jobmaster.landing.open_sources import open_source
from milepost.protocol.landed import JOB, LogRecord, Position, StoredRecord, require_identity
from milepost.protocol.manifest.transaction import job_ended_error
from milepost.protocol.records import ENDED_STATUSES
from milepost.sources.landed import LandedSource
from milepost.storage.log import SourceLog

REASON_CHARACTERS = 1_000
"""Maximum length of a reason in a record."""


def newest_record(context: JobContext, source: str) -> StoredRecord:
    """Return the newest record of a log that can continue. Raises: as the plan of an approval."""
    require_landed(context, source)
    state = context.head().state
    if state.status in ENDED_STATUSES:
        raise job_ended_error(state)
    log = context.source_log(source)
    newest = log.newest()
    if newest is None:
        raise NotFound(
            f"source {source}: nothing was landed yet, so nothing can be missing or false. Nothing was changed.",
            hint=f"milepost land {context.spec.name} --source {source}",
            source=source,
        )
    require_log_of_head(context, log, state)
    return newest


def open_as_landed(context: JobContext, source: str, newest: StoredRecord) -> LandedSource:
    """Open the external system that a log is a copy of. Raises SourceReplaced: it is another one."""
    opened = open_source(context, source, context.spec.landed[source])
    require_identity(source, newest.record.identity, {JOB: context.identity, **opened.identity()})
    return opened


def lost_after(context: JobContext, source: str, newest: StoredRecord, end: Position) -> str | None:
    """Return why the external system does not have what follows a position; None: it has it."""
    opened = open_as_landed(context, source, newest)  # some sources read once per opening
    return reason_of_loss(source, opened, end, whole=False)


def record_of_approval(log: SourceLog, sequence: int, what: str) -> LogRecord | None:
    """Return the record that an approval may have appended; None: there is none.

    Raises PlanOutdated: it was deleted since, so the log has moved.
    """
    try:
        return log.record(sequence).record
    except NotFound:
        if log.floor is None or sequence >= log.floor.next:
            return None
        why = f"record {sequence} of its log, which would be the {what}, was landed and deleted (`land.retain`)"
        raise outdated(log.source, why, what) from None


def outdated(source: str, why: str, what: str = "gap") -> PlanOutdated:
    """Return the error for an approval that no longer fits."""
    return PlanOutdated(
        f"source {source}: the {what} that was approved no longer fits: {why}. Nothing was changed.",
        hint="look at a new plan",
        source=source,
    )
