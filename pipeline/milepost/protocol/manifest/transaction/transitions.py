"""State machines as data: every legal (status, event) pair. Any other pair is a ProtocolViolation.

Every transition is checked against these tables before it is written, histories fold them over the log, and
`docs/reference/protocol-tables.md` shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from milepost.errors import ProtocolViolation
from milepost.protocol.manifest.transaction.events import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointPinned,
    CheckpointRebound,
    CheckpointsSubsumed,
    CheckpointTriggered,
    CheckpointUnpinned,
    Event,
    ForkDisposed,
    GarbageDeleted,
    GarbageFolded,
    GarbageListed,
    JobCanceled,
    JobCleaned,
    JobCreated,
    JobFinished,
    JobResumed,
    JobStarted,
    LogCompacted,
    ObjectQuarantined,
    ObjectReleased,
    RealignmentDecided,
    SavepointCreated,
    SavepointDisposed,
    SinkReconciled,
    SinksConfirmed,
    TimelineForked,
    TimelineFrozen,
    TimelineSwitched,
    TimelineThawed,
    aborts_of,
)
from milepost.protocol.records.checkpoints import CheckpointStatus
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.manifest_state import ENDED_STATUSES, JobStatus

Status = TypeVar("Status", bound=Enum)


@dataclass(frozen=True, slots=True)
class Rule(Generic[Status]):
    """In status `before` (None: none yet), `event` leads to `after` if `holds`; `when` is that condition as text."""

    before: Status | None
    event: type[Event]
    after: Status
    when: str = ""
    holds: Callable[[Event], bool] = lambda event: True


def _tolerated(event: Event) -> bool:
    return isinstance(event, CheckpointAborted) and event.tolerated


def _not_tolerated(event: Event) -> bool:
    return isinstance(event, CheckpointAborted) and not event.tolerated


_ANY_STATUS = (JobStatus.RUNNING, JobStatus.FAILED, JobStatus.FINISHED, JobStatus.CANCELED)

JOB_RULES: tuple[Rule[JobStatus], ...] = (
    Rule(None, JobCreated, JobStatus.RUNNING),
    Rule(JobStatus.RUNNING, CheckpointTriggered, JobStatus.RUNNING),
    Rule(JobStatus.RUNNING, CheckpointRebound, JobStatus.RUNNING),
    Rule(JobStatus.RUNNING, CheckpointCompleted, JobStatus.RUNNING),
    Rule(JobStatus.RUNNING, CheckpointAborted, JobStatus.RUNNING, "tolerated or not counted", _tolerated),
    Rule(JobStatus.RUNNING, CheckpointAborted, JobStatus.FAILED, "not tolerated", _not_tolerated),
    *(
        Rule(JobStatus.FAILED, event, JobStatus.FAILED, "on a fork")
        for event in (CheckpointTriggered, CheckpointRebound, CheckpointCompleted)
    ),
    Rule(JobStatus.FAILED, CheckpointAborted, JobStatus.FAILED, "on a fork", _tolerated),
    *(
        Rule(status, event, status, "imported on a fork")
        for status in ENDED_STATUSES
        for event in (CheckpointTriggered, CheckpointCompleted)
    ),
    *(Rule(status, CheckpointAborted, status, "imported on a fork", _tolerated) for status in ENDED_STATUSES),
    Rule(JobStatus.FAILED, JobResumed, JobStatus.RUNNING),
    Rule(JobStatus.RUNNING, TimelineSwitched, JobStatus.RUNNING),
    Rule(JobStatus.FAILED, TimelineSwitched, JobStatus.RUNNING, "a person has decided"),
    *(Rule(status, TimelineSwitched, status, "the result is clean") for status in ENDED_STATUSES),
    Rule(JobStatus.RUNNING, JobFinished, JobStatus.FINISHED),
    *(Rule(status, JobCanceled, JobStatus.CANCELED) for status in (JobStatus.RUNNING, JobStatus.FAILED)),
    *(Rule(status, JobCleaned, status) for status in ENDED_STATUSES),
    *(Rule(status, JobStarted, JobStatus.RUNNING, "the result is clean") for status in ENDED_STATUSES),
    *(Rule(status, SinksConfirmed, status, "a fact, whatever the status") for status in _ANY_STATUS),
    *(Rule(status, CheckpointsSubsumed, status) for status in _ANY_STATUS),
    *(Rule(status, GarbageDeleted, status) for status in _ANY_STATUS),
    *(Rule(status, GarbageListed, status) for status in _ANY_STATUS),
    *(Rule(status, GarbageFolded, status) for status in _ANY_STATUS),
    *(Rule(status, LogCompacted, status) for status in _ANY_STATUS),
    *(Rule(status, CheckpointPinned, status) for status in _ANY_STATUS),
    *(Rule(status, CheckpointUnpinned, status) for status in _ANY_STATUS),
    *(Rule(status, SinkReconciled, status, "a fact, whatever the status") for status in _ANY_STATUS),
    *(Rule(status, RealignmentDecided, status, "a person has decided") for status in _ANY_STATUS),
    *(
        Rule(status, event, status)
        for event in (
            ObjectQuarantined,
            ObjectReleased,
            TimelineForked,
            ForkDisposed,
            TimelineFrozen,
            TimelineThawed,
            SavepointCreated,
            SavepointDisposed,
        )
        for status in _ANY_STATUS
    ),
)

CHECKPOINT_RULES: tuple[Rule[CheckpointStatus], ...] = (
    Rule(None, CheckpointTriggered, CheckpointStatus.PENDING),
    Rule(CheckpointStatus.PENDING, CheckpointRebound, CheckpointStatus.PENDING),
    Rule(CheckpointStatus.PENDING, CheckpointCompleted, CheckpointStatus.COMPLETED),
    Rule(CheckpointStatus.PENDING, CheckpointAborted, CheckpointStatus.ABORTED),
    Rule(CheckpointStatus.PENDING, JobCanceled, CheckpointStatus.ABORTED),
    Rule(CheckpointStatus.PENDING, ForkDisposed, CheckpointStatus.ABORTED),
    Rule(CheckpointStatus.COMPLETED, SinksConfirmed, CheckpointStatus.COMPLETED),
    Rule(CheckpointStatus.COMPLETED, CheckpointPinned, CheckpointStatus.COMPLETED),
    Rule(CheckpointStatus.COMPLETED, CheckpointUnpinned, CheckpointStatus.COMPLETED),
    Rule(CheckpointStatus.COMPLETED, SavepointCreated, CheckpointStatus.COMPLETED),
    Rule(CheckpointStatus.COMPLETED, SavepointDisposed, CheckpointStatus.COMPLETED),
    Rule(CheckpointStatus.COMPLETED, CheckpointsSubsumed, CheckpointStatus.SUBSUMED),
)


def _after(rules: Sequence[Rule[Status]], what: str, status: Status | None, event: Event) -> Status:
    for rule in rules:
        if rule.before == status and rule.event is type(event) and rule.holds(event):
            return rule.after
    allowed = sorted({rule.event.__name__ for rule in rules if rule.before == status})
    raise ProtocolViolation(
        f"{what} in status {_name(status)}: {type(event).__name__} refused, expected"
        f" {' or '.join(allowed) if allowed else 'no further event'}. Nothing was written."
    )


def job_status_after(status: JobStatus | None, event: Event) -> JobStatus:
    """Return the job's status after an event. Raises ProtocolViolation if the event is illegal in `status`."""
    return _after(JOB_RULES, "job", status, event)


def checkpoint_status_after(status: CheckpointStatus | None, event: Event) -> CheckpointStatus:
    """Return the status of the event's checkpoints (`checkpoints_of`) after it. Raises ProtocolViolation."""
    return _after(CHECKPOINT_RULES, "checkpoint", status, event)


def checkpoints_of(event: Event) -> tuple[CheckpointId, ...]:
    """Return the checkpoints whose status an event affects, ascending."""
    match event:
        case CheckpointTriggered():
            return (event.pending.checkpoint_id,)
        case CheckpointCompleted():
            return (event.checkpoint.checkpoint_id,)
        case CheckpointRebound() | SinksConfirmed() | CheckpointUnpinned():
            return (event.checkpoint_id,)
        case CheckpointPinned():
            return (event.pin.checkpoint_id,)
        case SavepointCreated() | SavepointDisposed():
            return (event.savepoint.checkpoint_id,)
        case CheckpointsSubsumed():
            return event.checkpoint_ids
    return tuple(sorted(aborted.pending.checkpoint_id for aborted in aborts_of(event)))


def _name(status: Enum | None) -> str:
    return "(none)" if status is None else str(status.value)
