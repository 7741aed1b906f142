"""Refuse what is not available for a job with landed sources, or for a checkpoint whose log is elsewhere."""

from __future__ import annotations

from milepost.epoch import CheckpointMetadata
from milepost.errors import InvalidRequest
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.landed import require_own_log
from milepost.storage.log import SourceLog


def require_no_landed_source(context: JobContext, use: str) -> None:
    """Raise InvalidRequest if the job has a landed source. use: what is refused, for the message."""
    if landed := context.spec.landed:
        raise InvalidRequest(
            f"job {context.spec.name}: {use} is not available in this version for a job with landed sources "
            f"({', '.join(landed)}). Nothing was changed.",
            sources=list(landed),
        )


def require_own_positions(context: JobContext, saved: CheckpointMetadata, where: str, *, has_run: bool) -> None:
    """Check that the job can continue the positions of a savepoint in its own logs.

    Args:
        where: location of the savepoint. has_run: whether the job has a manifest.
    Raises:
        InvalidRequest: a position is on a log that this job's storage does not have.
        SourceReplaced: the log is there, of an earlier life of the job.
    """
    for source, snapshot in sorted(saved.sources.items()):
        if snapshot.position is None:
            continue
        log = SourceLog(context.store, source)
        if not has_run or not log.holds(snapshot.position):
            raise InvalidRequest(
                f"job {context.spec.name}: the savepoint at {where} has read source {source} of job {saved.job} up to "
                f"record {snapshot.position.next - 1} of its log {snapshot.position.log}, and this job's storage does "
                "not have that log. Continuing a landed source elsewhere is not available in this version. Nothing was "
                "changed.",
                hint=f"restore it into job {saved.job} in the storage that has the log; to move a job with landed "
                "sources, move its whole storage",
                source=source,
            )
        require_own_log(source, log.record(1).record.identity, context.identity)
