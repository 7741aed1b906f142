"""Every broken invariant of a manifest value's timelines is detected."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from milepost.protocol.manifest.invariants import faults
from milepost.protocol.records.ids import CheckpointId, TimelineId
from milepost.protocol.records.manifest_state import (
    Freeze,
    JobStatus,
    ManifestState,
    Reconciliation,
    Savepoint,
    TimelineRole,
)
from milepost_testkit.jobs.job_log import PLAN, A, B, JobLog


def switched() -> ManifestState:
    """Live is t7 at checkpoint 1, which two sinks have yet to follow to; main is abandoned, with 1, 2; t8 is a fork."""
    log = JobLog()
    log.epoch(A, confirm=False)
    log.trigger(A)
    log.complete(A)
    log.rollback(B, 1, sinks=("a", "b"))
    log.fork(B, 2)
    return log.state


STATE = switched()
MAIN, LIVE, FORK = STATE.timelines
DUE = STATE.reconciliation
assert DUE is not None
RUNNING = JobLog()
RUNNING.trigger(A)
PENDING = RUNNING.pending
LEADER = RUNNING.state.timeline().leader


def with_timelines(*timelines: object) -> ManifestState:
    return replace(STATE, timelines=timelines)  # type: ignore[arg-type]


def with_due(**changes: object) -> ManifestState:
    return replace(STATE, reconciliation=replace(DUE, **changes))  # type: ignore[type-var]


def with_first(**changes: object) -> ManifestState:
    return replace(STATE, checkpoints=(replace(STATE.checkpoints[0], **changes), STATE.checkpoints[1]))  # type: ignore[arg-type]


def saved(checkpoint_id: int, *names: str) -> ManifestState:
    copies = tuple(Savepoint(name, CheckpointId(checkpoint_id), None, PLAN, 1) for name in names)
    return replace(STATE, savepoints=copies)


def test_a_state_of_the_coordinator_is_sound() -> None:
    assert faults(STATE) == []
    assert faults(saved(2, "a", "b")) == []
    assert (MAIN.role, LIVE.role, FORK.role) == (TimelineRole.ABANDONED, TimelineRole.LIVE, TimelineRole.FORK)


@pytest.mark.parametrize(
    ("state", "match"),
    [
        (with_timelines(MAIN, LIVE, replace(FORK, role=TimelineRole.LIVE)), "it is live, and the live one is t7"),
        (with_timelines(MAIN, replace(LIVE, role=TimelineRole.FORK), FORK), "t7: it is fork, and the live one is t7"),
        (replace(STATE, live=FORK.timeline_id), "it is fork, and the live one is t8"),
        (
            with_timelines(MAIN, LIVE, replace(FORK, live_from=CheckpointId(1))),
            "t8: it is fork, but says it is live",
        ),
        (with_timelines(MAIN, replace(LIVE, live_from=None), FORK), "t7: it is live, but says it is live"),
        (with_timelines(MAIN, LIVE, replace(FORK, frozen=Freeze(B, 1))), "only the live one may be frozen"),  # type: ignore[arg-type]
        (with_timelines(replace(MAIN, leader=LEADER), LIVE, FORK), "I3: timeline main: it is abandoned and must have"),
        (with_timelines(replace(MAIN, pending=PENDING), LIVE, FORK), "I3: timeline main: it is abandoned and must"),
        (
            with_timelines(MAIN, replace(FORK, timeline_id=TimelineId("t9"), role=TimelineRole.ABANDONED), LIVE),
            "t9: it is abandoned and nothing of it is retained",
        ),
        (
            with_timelines(MAIN, LIVE, replace(FORK, head=CheckpointId(9))),
            "t8: its head, checkpoint 9, must be retained",
        ),
        (
            with_timelines(MAIN, LIVE, replace(FORK, head=CheckpointId(1))),
            "checkpoint 1, must be its own or the one it",
        ),
        (with_timelines(LIVE, FORK), "checkpoint 1: its timeline, main, must be listed"),
        (with_due(timeline=TimelineId("main")), "I14: the switch of version 7 to timeline main must be the newest"),
        (with_due(decision=99), "I14: the switch of version 99 to timeline t7 must be the newest one"),
        (with_due(checkpoint_id=CheckpointId(7)), "checkpoint 7, its target, must be retained"),
        (with_due(checkpoint_id=CheckpointId(2)), "nothing may be triggered or completed before all sinks"),
        (with_due(sinks=()), "must be some, each once, in order"),
        (with_due(sinks=("b", "a")), "must be some, each once, in order"),
        (with_due(sinks=("a", "a")), "must be some, each once, in order"),
        (with_timelines(MAIN, replace(LIVE, leader=LEADER, pending=PENDING), FORK), "nothing may be triggered or"),
        (
            with_first(sinks=("a", "lake"), unconfirmed=("a",)),
            r"replaces the commits of checkpoints \[1\]: none of them may be due",
        ),
        (with_first(sinks=("x",), unconfirmed=("lake",)), "unconfirmed .* must be sinks of it"),
        (with_due(realigned=("other",)), "realigned .* must be some of its sinks"),
        (with_due(sinks=("a", "b"), realigned=("b", "a")), "realigned .* must be some of its sinks"),
        (
            replace(RUNNING.state, status=JobStatus.FAILED),
            "I4: the job is FAILED, and checkpoint 1 is pending on its live timeline",
        ),
        (saved(9, "a"), "I8: checkpoint 9 of savepoint a must be retained"),
        (saved(1, "b", "a"), "savepoints .* must be listed once, by name"),
        (saved(1, "a", "a"), "savepoints .* must be listed once, by name"),
    ],
)
def test_a_broken_invariant_is_named(state: ManifestState, match: str) -> None:
    found = faults(state)
    assert any(re.search(match, fault) for fault in found), found


def test_a_switch_to_the_empty_state_is_sound() -> None:
    log = JobLog()
    log.epoch(A)
    log.rollback(B, 0)
    assert faults(log.state) == []
    assert log.state.reconciliation == Reconciliation(log.state.version, log.state.live, CheckpointId(0), ("lake",))


def test_an_abandoned_timeline_keeps_the_name_of_a_dropped_head() -> None:
    """It is history: only what the live timeline and the forks stand on must be retained."""
    log = JobLog()
    for _ in range(3):
        log.epoch(A)
    log.rollback(A, 1)
    log.reconcile(A)
    for _ in range(2):
        log.epoch(A)
    log.pin(A, 1)
    log.subsume(A, (2, 3), last=2)
    assert log.state.timelines[0].head == 3 and log.state.checkpoint(CheckpointId(3)) is None
    assert faults(log.state) == []
