"""Conditions of a job are what `status` finds it in; of each the runbook has a page of the same name."""

from __future__ import annotations

from enum import Enum


class Condition(Enum):
    """The one thing about a job that matters first. What stands further up hides what stands below it.

    Attributes:
        FAILED: no epoch runs until a person resumes it. CANCELLING: an end whose clean-up is not over.
        CANCELED, FINISHED: the incarnation has ended.
        RECONCILING: sinks have yet to follow the live timeline.
        EPOCH_FAILED: the last epoch did; the next one tries again.
        SPEC_REFUSED, INPUT_REFUSED: the next epoch would be, for its spec or for objects of its sources.
        UNPUBLISHED: completed checkpoints wait for a sink. LEASE_OVER: nobody works on what is pending.
        OVERDUE: nothing lands where something is expected. LATE: input is older than the bound.
        NO_INPUT: the path of a source has never matched an object.
        RUNNING: an epoch does. FROZEN: the last stretch of a backfill keeps others from triggering.
        BACKFILL_UNFINISHED: one waits to be continued.
        INITIALIZING: no epoch has completed yet. HEALTHY: nothing is wrong.
    """

    FAILED = "failed"
    CANCELLING = "cancelling"
    CANCELED = "canceled"
    FINISHED = "finished"
    RECONCILING = "reconciling"
    EPOCH_FAILED = "epoch-failed"
    SPEC_REFUSED = "spec-refused"
    INPUT_REFUSED = "input-refused"
    UNPUBLISHED = "unpublished"
    LEASE_OVER = "lease-over"
    OVERDUE = "overdue"
    LATE = "late"
    NO_INPUT = "no-input"
    RUNNING = "running"
    FROZEN = "frozen"
    BACKFILL_UNFINISHED = "backfill-unfinished"
    INITIALIZING = "initializing"
    HEALTHY = "healthy"
