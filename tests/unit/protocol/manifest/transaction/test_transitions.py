"""The transition tables are the state machine."""

from __future__ import annotations

from itertools import product

import pytest

from milepost.errors import ProtocolViolation
from milepost.protocol.manifest.transaction.answers import advance
from milepost.protocol.manifest.transaction.events import EVENT_TYPES, CheckpointAborted, Event, SinksConfirmed
from milepost.protocol.manifest.transaction.transitions import (
    CHECKPOINT_RULES,
    JOB_RULES,
    checkpoint_status_after,
    checkpoints_of,
    job_status_after,
)
from milepost.protocol.records.checkpoints import CheckpointStatus
from milepost.protocol.records.ids import CheckpointId, SessionId
from milepost.protocol.records.manifest_state import JobStatus
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import A, JobLog
from tests.unit.protocol.log.test_entry_codec import ENTRIES

SAMPLES: dict[type[Event], Event] = {type(entry.event): entry.event for entry in ENTRIES}


def test_every_event_has_a_rule_for_the_job() -> None:
    assert {rule.event for rule in JOB_RULES} == set(EVENT_TYPES) == set(SAMPLES)


@pytest.mark.deep
@pytest.mark.parametrize(("status", "event_type"), list(product([None, *JobStatus], EVENT_TYPES)))
def test_events_outside_the_job_table_are_refused(status: JobStatus | None, event_type: type[Event]) -> None:
    """An illegal event raises; a legal one leads to the status in the table."""
    event = SAMPLES[event_type]
    fitting = [rule for rule in JOB_RULES if rule.before is status and rule.event is event_type]
    legal = {rule.after for rule in fitting if rule.holds(event)}
    if legal:
        assert job_status_after(status, event) in legal
    else:
        with wording.raises(ProtocolViolation) as refused:
            job_status_after(status, event)
        assert event_type.__name__ in str(refused.value)


@pytest.mark.deep
@pytest.mark.parametrize(("status", "event_type"), list(product([None, *CheckpointStatus], EVENT_TYPES)))
def test_events_outside_the_checkpoint_table_are_refused(
    status: CheckpointStatus | None, event_type: type[Event]
) -> None:
    event = SAMPLES[event_type]
    legal = {rule.after for rule in CHECKPOINT_RULES if rule.before is status and rule.event is event_type}
    if legal:
        assert {checkpoint_status_after(status, event)} == legal
    else:
        with wording.raises(ProtocolViolation):
            checkpoint_status_after(status, event)


@pytest.mark.parametrize("status", [CheckpointStatus.ABORTED, CheckpointStatus.SUBSUMED])
def test_aborted_and_subsumed_are_final(status: CheckpointStatus) -> None:
    with wording.raises(ProtocolViolation):
        checkpoint_status_after(status, SAMPLES[CheckpointAborted])


def test_an_event_names_the_checkpoints_it_concerns() -> None:
    named = {event_type.__name__: checkpoints_of(event) for event_type, event in SAMPLES.items()}
    assert named == {
        "JobCreated": (),
        "CheckpointTriggered": (6,),
        "CheckpointRebound": (2,),
        "CheckpointCompleted": (5,),
        "CheckpointAborted": (8,),
        "SinksConfirmed": (1,),
        "CheckpointsSubsumed": (1,),
        "GarbageDeleted": (),
        "GarbageListed": (),
        "GarbageFolded": (),
        "LogCompacted": (),
        "JobResumed": (),
        "JobCanceled": (4,),
        "JobFinished": (),
        "JobCleaned": (),
        "JobStarted": (),
        "CheckpointPinned": (2,),
        "CheckpointUnpinned": (2,),
        "ObjectQuarantined": (),
        "ObjectReleased": (),
        "TimelineSwitched": (),
        "TimelineForked": (),
        "ForkDisposed": (6,),
        "TimelineFrozen": (),
        "TimelineThawed": (),
        "SinkReconciled": (),
        "RealignmentDecided": (),
        "SavepointCreated": (2,),
        "SavepointDisposed": (2,),
    }


@pytest.mark.parametrize(("checkpoint_id", "status"), [(1, "subsumed"), (3, "aborted")])
def test_a_transition_about_a_checkpoint_whose_life_is_over_is_never_written(checkpoint_id: int, status: str) -> None:
    """Even if a caller forgets a check, the table is consulted before anything is written."""
    log = JobLog()
    log.epoch(A)
    log.epoch(A)
    log.subsume(A, (1,))
    log.trigger(A)
    log.abort(A)
    event = SinksConfirmed(log.now_ms, CheckpointId(checkpoint_id), ("lake",), SessionId(A))
    with wording.raises(ProtocolViolation) as refused:
        advance(log.state, event)
    assert status in str(refused.value)
