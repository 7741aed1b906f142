"""The checkpoints that a job's live head continues, as its log has them."""

from __future__ import annotations

from milepost.jobmaster.job.context import JobContext
from milepost.protocol.log.log_entries import CompletedEpoch, completion_of


def live_lineage(context: JobContext) -> list[CompletedEpoch]:
    """Return the completed epochs up to the live head, oldest first; none if the job never ran."""
    head = context.log.head()
    known = {done.checkpoint_id: done for done in map(completion_of, context.log.entries()) if done is not None}
    at, found = 0 if head is None else head.state.timeline().head, []
    while at:
        found.append(known[at])
        at = known[at].parent
    return found[::-1]
