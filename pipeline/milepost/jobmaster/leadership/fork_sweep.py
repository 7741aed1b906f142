"""Abort what dead sessions left pending on forks, since it would block newer garbage (I8)."""

from __future__ import annotations

import logging

from milepost.errors import Busy, CommitConflict, Fenced
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.protocol.retention import open_forks

_LOG = logging.getLogger(__name__)


def sweep_forks(context: JobContext, session: Session) -> None:
    """Sweep the pending checkpoint of every open fork with an expired lease.

    A checkpoint of a live session stays. A fork without a pending checkpoint stays too, since it may be continued.
    """
    for fork in open_forks(context.recent_state()):
        if fork.pending is None:
            continue
        try:
            Leadership(context, fork.timeline_id).sweep(session, take_over=False)
        except (Busy, CommitConflict, Fenced) as error:
            _LOG.info("fork %s is not swept: %s", fork.timeline_id, error.message)
