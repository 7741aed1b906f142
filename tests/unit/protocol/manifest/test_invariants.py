"""Every broken invariant of the manifest value is detected."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from milepost.protocol.manifest.invariants import faults
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.ids import CheckpointId, FencingToken, TimelineId
from milepost.protocol.records.manifest_state import CleanUp, Garbage, JobStatus, ManifestState, Pin, Timeline
from milepost_testkit.jobs.job_log import A, JobLog


def running() -> tuple[ManifestState, Timeline, PendingCheckpoint]:
    log = JobLog()
    log.epoch(A)
    log.epoch(A)
    log.trigger(A)
    log.rebind(A)
    return log.state, log.state.timeline(), log.pending


STATE, TIMELINE, PENDING = running()


def with_timeline(**changes: object) -> ManifestState:
    return replace(STATE, timelines=(replace(TIMELINE, **changes),))  # type: ignore[arg-type]


def with_pending(**changes: object) -> ManifestState:
    return with_timeline(pending=replace(PENDING, **changes))  # type: ignore[arg-type]


def with_garbage(*prefixes: str) -> ManifestState:
    return replace(STATE, garbage=tuple(Garbage(prefix, 1, 1) for prefix in prefixes))


FIRST = STATE.checkpoints[0]
LEADER = TIMELINE.leader
assert LEADER is not None


def test_a_state_of_the_coordinator_is_sound() -> None:
    assert faults(STATE) == []


@pytest.mark.parametrize(
    ("state", "match"),
    [
        (replace(STATE, live=TimelineId("gone")), "contain the live one"),
        (replace(STATE, timelines=(TIMELINE, TIMELINE)), "must differ"),
        (replace(STATE, checkpoints=STATE.checkpoints[::-1]), "I5: checkpoint ids"),
        (replace(STATE, checkpoints=(FIRST, FIRST, STATE.checkpoints[1])), "I5: checkpoint ids"),
        (replace(STATE, next_checkpoint_id=CheckpointId(2)), "between 1 and the next"),
        (
            replace(STATE, checkpoints=(replace(FIRST, unconfirmed=("x",)), STATE.checkpoints[1])),
            "unconfirmed .* must be sinks of it",
        ),
        (
            replace(STATE, checkpoints=(replace(FIRST, version=0), STATE.checkpoints[1])),
            "I14: checkpoint 1 was completed by version 0 of",
        ),
        (
            replace(STATE, checkpoints=(FIRST, replace(STATE.checkpoints[1], version=STATE.version + 1))),
            "I14: checkpoint 2 was completed by version",
        ),
        (replace(STATE, checkpoints=(FIRST,)), "its head, checkpoint 2, must be retained"),
        (replace(STATE, version=5), "must not be above version"),
        (with_timeline(leader=None), "the leader must hold"),
        (with_timeline(leader=replace(LEADER, token=FencingToken(1))), "the leader must hold"),
        (with_pending(checkpoint_id=CheckpointId(2)), "between its head and the next id"),
        (with_pending(checkpoint_id=CheckpointId(9)), "between its head and the next id"),
        (with_pending(base=CheckpointId(1)), "must continue the head"),
        (with_pending(prefixes=()), "must rise strictly"),
        (with_pending(prefixes=PENDING.prefixes[::-1]), "must rise strictly"),
        (with_pending(prefixes=PENDING.prefixes[:1]), "must be in force"),
        (with_garbage(FIRST.metadata.key.removesuffix("_metadata")), "covers chk-.*which is live"),
        (with_garbage("chk-00000000000000000003/"), "I8: garbage chk-00000000000000000003/ covers"),
        (with_garbage("inputs/a.json"), "must be below a checkpoint"),
        (with_garbage("chk-00000000000000000001/t00000000000000000002/state/"), "must be an object, or a directory"),
        (with_garbage("chk-00000000000000000001/t1", "chk-00000000000000000001/t1"), "listed once"),
    ],
)
def test_a_broken_invariant_is_named(state: ManifestState, match: str) -> None:
    found = faults(state)
    assert any(re.search(match, fault) for fault in found), found


def ended(**changes: object) -> ManifestState:
    """A job that is FINISHED and clean in its second incarnation, with a field of the state replaced."""
    log = JobLog()
    log.epoch(A)
    log.cancel(A)
    log.clean(A)
    log.start(A)
    log.epoch(A)
    log.finish(A)
    log.clean(A)
    return replace(log.state, **changes)  # type: ignore[arg-type]


OLD, NEWEST = ended().results
OTHER = replace(STATE.timeline(), pending=None)


@pytest.mark.parametrize(
    ("state", "match"),
    [
        (ended(results=(NEWEST, OLD)), "I4: results of incarnations .* must rise strictly"),
        (ended(results=(OLD, replace(NEWEST, incarnation=3))), "must rise strictly, up to 2"),
        (ended(results=(replace(OLD, status=JobStatus.FAILED), NEWEST)), "must be FINISHED or CANCELED"),
        (ended(results=(replace(OLD, clean_up=CleanUp.DIRTY), NEWEST)), "only the newest result may be dirty"),
        (ended(results=(OLD,)), "I4: incarnation 2 is FINISHED, its result says None"),
        (ended(results=()), "I4: incarnation 2 is FINISHED, its result says None"),
        (ended(status=JobStatus.CANCELED), "I4: incarnation 2 is CANCELED, its result says"),
        (ended(status=JobStatus.RUNNING), "I4: incarnation 2 is RUNNING, its result says"),
        (
            replace(STATE, incarnation=2, results=(replace(OLD, clean_up=CleanUp.DIRTY),)),
            "incarnation 1 must be clean before the next one starts",
        ),
        (ended(timelines=(OTHER,)), "neither a leader nor a pending checkpoint"),
        (replace(STATE, pins=(Pin("r", CheckpointId(9), 1),)), "I8: checkpoint 9 is pinned by r and must be retained"),
        (replace(STATE, pins=(Pin("r", CheckpointId(1), 1),) * 2), "must be listed once, by name"),
        (replace(STATE, pins=(Pin("r", CheckpointId(1), 1), Pin("a", CheckpointId(1), 1))), "once, by name"),
    ],
)
def test_a_broken_result_or_pin_is_named(state: ManifestState, match: str) -> None:
    found = faults(state)
    assert any(re.search(match, fault) for fault in found), found


def test_an_ended_job_and_a_pinned_checkpoint_are_sound() -> None:
    assert faults(ended()) == []
    assert faults(replace(STATE, pins=(Pin("r", CheckpointId(1), 1),))) == []


def test_a_leader_without_a_pending_checkpoint_may_be_of_any_earlier_version() -> None:
    assert faults(with_timeline(pending=None)) == []
