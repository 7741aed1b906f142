"""Conditions of a job that `status` reports. The runbook has a page for each."""

from __future__ import annotations

from enum import Enum


class Condition(Enum):
    """The most urgent condition of a job. Earlier members take precedence over later ones.

    Attributes:
        FAILED: no epoch runs until a person resumes the job. CANCELLING: the job ended, its clean-up has not.
        CANCELED, FINISHED: the incarnation has ended.
        RECONCILING: sinks do not show the live timeline yet.
        EPOCH_FAILED: the last epoch failed; the next one retries.
        SPEC_REFUSED, INPUT_REFUSED: the next epoch would be refused, for the spec or for objects of a source.
        UNPUBLISHED: completed checkpoints wait for a sink. LEASE_OVER: a checkpoint is pending, its lease has expired.
        LANDING_FAILED: the last landing of a source failed. Epochs process the input that was landed before.
        OVERDUE: a source has no new objects for longer than expected. LATE: input is older than the given bound.
        STALE: the tables are older than usual.
        ROWS_MISSING: more rows than usual are late, dropped, unreadable or rejected by rules.
        RULES_UNMET: rows of the newest epoch break a rule that only warns.
        NO_INPUT: the path of a source has never matched an object.
        RUNNING: an epoch is running. FROZEN: a backfill that is about to switch blocks other triggers.
        BACKFILL_UNFINISHED: a backfill waits to be continued.
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
    LANDING_FAILED = "landing-failed"
    OVERDUE = "overdue"
    LATE = "late"
    STALE = "stale"
    ROWS_MISSING = "rows-missing"
    RULES_UNMET = "rules-unmet"
    NO_INPUT = "no-input"
    RUNNING = "running"
    FROZEN = "frozen"
    BACKFILL_UNFINISHED = "backfill-unfinished"
    INITIALIZING = "initializing"
    HEALTHY = "healthy"
