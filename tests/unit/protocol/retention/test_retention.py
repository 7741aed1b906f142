"""Retention: the tiers against a plain model, and what timelines and sinks still need (I8)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.records.ids import CheckpointId, TimelineId
from milepost.protocol.retention.ancestry import checkpoint_ancestry, shared_checkpoint, timeline_ancestry
from milepost.protocol.retention.retention import RetentionPolicy, select_checkpoints, subsumable
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import A, B, JobLog, epochs
from milepost_testkit.models.protocol.retention_tiers import HOUR_MS, kept_by_tiers

SAMPLE = JobLog()
SAMPLE.epoch(A)
CHECKPOINT = SAMPLE.state.checkpoints[0]

TIMES = st.lists(st.integers(0, 30 * 24 * 4).map(lambda quarters: quarters * HOUR_MS // 4), max_size=40)
TIERS = st.tuples(st.integers(1, 6), st.integers(0, 30), st.integers(0, 40))


@given(times=TIMES, tiers=TIERS)
def test_each_tier_keeps_the_newest_of_its_newest_intervals(times: list[int], tiers: tuple[int, int, int]) -> None:
    """Also where the clock has jumped back between two checkpoints: the newest of an interval is the highest id."""
    checkpoints = [
        replace(CHECKPOINT, checkpoint_id=CheckpointId(number), trigger_time_ms=at)
        for number, at in enumerate(times, start=1)
    ]
    assert select_checkpoints(checkpoints[::-1], RetentionPolicy(*tiers)) == kept_by_tiers(
        dict(enumerate(times, 1)), *tiers
    )


@given(times=TIMES, tiers=TIERS, more=TIERS)
def test_a_wider_policy_retains_everything_a_narrower_one_does(
    times: list[int], tiers: tuple[int, int, int], more: tuple[int, int, int]
) -> None:
    checkpoints = [
        replace(CHECKPOINT, checkpoint_id=CheckpointId(number), trigger_time_ms=at)
        for number, at in enumerate(times, start=1)
    ]
    wider = RetentionPolicy(*(one + other for one, other in zip(tiers, more, strict=True)))
    assert select_checkpoints(checkpoints, RetentionPolicy(*tiers)) <= select_checkpoints(checkpoints, wider)


@pytest.mark.parametrize(("hourly", "daily"), [(-1, 0), (0, -1)])
def test_a_tier_below_nothing_is_refused(hourly: int, daily: int) -> None:
    with wording.raises(InvalidRequest):
        RetentionPolicy(1, hourly, daily)


def test_an_ancestry_continues_across_dropped_checkpoints() -> None:
    """It is a matter of timelines: a walk from parent to parent would end at the first hole."""
    log = epochs(3)
    log.rollback(A, 2)
    log.reconcile(A)
    for _ in range(3):
        log.epoch(A)
    log.pin(B, 2)
    log.subsume(A, (3, 4, 5), last=1)
    assert [one.checkpoint_id for one in timeline_ancestry(log.state, log.state.timeline())] == [1, 2, 6]
    assert [one.checkpoint_id for one in checkpoint_ancestry(log.state, CheckpointId(2))] == [1, 2]
    assert checkpoint_ancestry(log.state, CheckpointId(3)) == ()


def test_two_checkpoints_share_what_both_timelines_continue_also_if_one_has_left_the_list() -> None:
    log = epochs(3)
    log.rollback(A, 2)
    log.reconcile(A)
    line = log.state.live
    for _ in range(3):
        log.epoch(A)

    def shared(timeline: str, checkpoint: int) -> int | None:
        other = TimelineId(timeline), CheckpointId(checkpoint)
        return shared_checkpoint(log.state, (line, CheckpointId(6)), other)

    own = {(line, 5): 5, (line, 2): 2, (line, 1): 1}
    expected = {("main", 1): 1, ("main", 2): 2, ("main", 3): 2, ("gone", 3): None, **own}
    assert {other: shared(*other) for other in expected} == expected
    log.subsume(A, (1, 2, 3, 4, 5), last=1)
    assert [each.timeline_id for each in log.state.timelines] == [line]
    assert {other: shared(*other) for other in expected} == expected


@pytest.mark.parametrize("own", [0, 1])
def test_an_ancestry_ends_at_the_empty_state(own: int) -> None:
    """Whether or not the timeline that it was begun from is still listed."""
    log = epochs(3)
    log.rollback(A, 2)
    log.reconcile(A)
    for _ in range(own):
        log.epoch(A)
    log.rollback(A, 0)
    log.reconcile(A)
    log.epoch(A)
    assert [one.checkpoint_id for one in timeline_ancestry(log.state, log.state.timeline())] == [4 + own]


def test_the_policy_holds_for_the_live_lineage_and_for_all_checkpoints_together() -> None:
    """An abandoned line is retained while it is among the newest; targets further back are retained as well."""
    log = epochs(5)
    log.rollback(A, 2)
    log.reconcile(A)
    log.trigger(A)
    assert subsumable(log.state, RetentionPolicy(2)) == (3,)
    log.complete(A)
    log.confirm(A, 6)
    assert subsumable(log.state, RetentionPolicy(2)) == (1, 3, 4)
    log.epoch(A)
    assert subsumable(log.state, RetentionPolicy(2)) == (1, 2, 3, 4, 5)


def test_a_backfills_replay_does_not_displace_the_line_that_it_replaced() -> None:
    """So a rollback can be undone, and that again, until the live line has continued for the retained length."""
    log = epochs(4)
    fork = log.fork(B, 1)
    for _ in range(5):
        log.epoch_on(B, fork, sinks=())
    log.fast_forward(B, fork)
    log.reconcile(B)
    log.trigger(A)
    assert subsumable(log.state, RetentionPolicy(1)) == (1, 2, 3, 5, 6, 7, 8), "4 is what it is undone to"
    assert subsumable(log.state, RetentionPolicy(3)) == (1, 5, 6)
    log.complete(A)
    log.confirm(A, 10)
    assert subsumable(log.state, RetentionPolicy(1)) == (1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert subsumable(log.state, RetentionPolicy(2)) == (1, 2, 3, 5, 6, 7, 8)
    log.rollback(A, 4)
    log.reconcile(A)
    log.trigger(A)
    assert subsumable(log.state, RetentionPolicy(2)) == (1, 2, 5, 6, 7, 8), "9 and 10: undone again"
    log.complete(A)
    log.confirm(A, 11)
    assert subsumable(log.state, RetentionPolicy(2)) == (1, 2, 3, 5, 6, 7, 8, 9)


def test_a_rollback_into_a_fork_displaces_no_checkpoint() -> None:
    log = epochs(3)
    fork = log.fork(B, 1)
    for _ in range(4):
        log.epoch_on(B, fork, sinks=())
    log.rollback(A, 5)
    log.reconcile(A)
    log.trigger(A)
    assert subsumable(log.state, RetentionPolicy(1)) == (1, 2, 4, 6), "of main 3, of the fork 7, and 5 goes on"
    assert subsumable(log.state, RetentionPolicy(2)) == (1,)


def test_an_abandoned_timeline_leaves_the_list_with_its_last_checkpoint() -> None:
    log = epochs(2)
    log.rollback(A, 1)
    log.reconcile(A)
    first = log.state.live
    log.epoch(A)
    log.rollback(A, 1)
    log.reconcile(A)
    log.epoch(A)
    log.epoch(A)
    log.subsume(A, (2, 3), last=2)
    assert [str(one.timeline_id) for one in log.state.timelines] == ["main", log.state.live]
    assert log.state.timeline().parent == ("main", 1)
    log.epoch(A)
    log.subsume(A, (1, 4), last=2)
    assert [one.timeline_id for one in log.state.timelines] == [log.state.live]
    assert first not in (one.timeline_id for one in log.state.timelines)


def test_a_lineage_survives_the_timelines_in_its_middle() -> None:
    """A timeline of which nothing is retained leaves the list, and what came before it stays the live lineage."""
    log = epochs(2)
    for _ in range(3):
        log.rollback(A, log.state.timeline().head - 1 if log.state.live == "main" else 1)
        log.reconcile(A)
        log.epoch(A)
    middle = log.state.live
    log.rollback(A, 4)
    log.reconcile(A)
    log.epoch(A)
    log.epoch(A)
    log.rollback(A, 6)
    log.reconcile(A)
    log.epoch(A)
    log.epoch(A)
    log.epoch(A)
    log.pin(B, 1)
    dropped = subsumable(log.state, RetentionPolicy(2))
    log.subsume(A, tuple(int(one) for one in dropped), last=2)
    assert middle not in [one.timeline_id for one in log.state.timelines]
    assert [one.checkpoint_id for one in timeline_ancestry(log.state, log.state.timeline())] == [1, 9, 10]
    assert log.state.timeline().parent == ("main", 1)


def test_checkpoints_of_an_open_fork_are_retained_until_its_disposal() -> None:
    log = epochs(2)
    fork = log.fork(B, 1)
    for _ in range(3):
        log.epoch_on(B, fork, sinks=())
    log.epoch(A)
    log.epoch(A)
    assert subsumable(log.state, RetentionPolicy(1)) == (2, 6), "also where it leaves: what it replays begins there"
    log.dispose_fork(B, fork)
    assert subsumable(log.state, RetentionPolicy(1)) == (1, 2, 3, 4, 5, 6)


def test_nothing_newer_than_a_pending_checkpoint_is_subsumed() -> None:
    """I8: everything from ``chk-<lowest pending>/`` on is live, on any timeline."""
    log = epochs(1)
    fork = log.fork(B, 1)
    log.trigger(B, timeline=fork)
    for _ in range(3):
        log.epoch(A)
    assert subsumable(log.state, RetentionPolicy(1)) == ()
    log.abort(B, 2)
    assert subsumable(log.state, RetentionPolicy(1)) == (3, 4)


def test_nothing_is_subsumed_while_a_sink_has_yet_to_follow_a_switch() -> None:
    """I8, I14: its table shows any checkpoint of the abandoned line, and moves on from there by the difference."""
    log = epochs(3)
    log.rollback(B, 2)
    assert subsumable(log.state, RetentionPolicy(1)) == ()
    log.reconcile(B)
    assert subsumable(log.state, RetentionPolicy(1)) == (1,)


def test_the_session_that_leads_subsumes_nothing_while_a_table_is_realigned() -> None:
    """I8: the checkpoint that the table shows is owed nothing more, but the difference is computed from it."""
    log = epochs(1)
    log.epoch(A, confirm=False)
    assert subsumable(log.state, RetentionPolicy(1)) == ()
    log.realign(B)
    assert (log.state.unconfirmed(), subsumable(log.state, RetentionPolicy(1))) == ((), ())
    answer = log.subsume(A, (1,))
    assert isinstance(answer, AlreadyDone) and answer.outcome is Outcome.NOTHING_TO_SUBSUME
    log.reconcile(B)
    assert isinstance(log.subsume(A, (1,)), Transition)


def test_checkpoints_shown_by_tables_are_retained_while_a_sink_is_unavailable() -> None:
    """I8, I14: the newest checkpoint that all sinks have confirmed, however many have been completed since."""
    log = epochs(2)
    for _ in range(3):
        log.epoch(A, confirm=False)
    assert subsumable(log.state, RetentionPolicy(1)) == (1,)
    log.confirm(A, 3)
    assert subsumable(log.state, RetentionPolicy(1)) == (1, 2)
    log.confirm(A, 4)
    log.confirm(A, 5)
    assert subsumable(log.state, RetentionPolicy(1)) == (1, 2, 3, 4)


def test_checkpoints_shown_by_either_of_two_unavailable_sinks_are_retained() -> None:
    """I8, I14: each has its own place among the unconfirmed."""
    log = JobLog()
    for number in range(1, 5):
        log.trigger(A)
        log.complete(A, sinks=("lake", "other"))
        for sink in ("lake", "other") if number < 3 else ("lake",) if number == 3 else ():
            log.confirm(A, number, sink)
    assert subsumable(log.state, RetentionPolicy(1)) == (1,), "2 is what other shows, 3 what lake does"


def test_the_checkpoint_of_a_table_that_waits_for_a_switch_is_retained() -> None:
    """I8, I14: the first epoch after a rollback continues a checkpoint of the line that was left."""
    log = epochs(4)
    log.rollback(B, 2)
    log.reconcile(B)
    log.epoch(A, confirm=False)
    assert subsumable(log.state, RetentionPolicy(1)) == (1, 3, 4)
    log.epoch(A, confirm=False)
    assert subsumable(log.state, RetentionPolicy(1)) == (1, 3, 4)


def test_a_replay_drops_nothing_that_its_head_needs() -> None:
    """I14: each checkpoint has its own contents, so a table can move to any retained one directly."""
    log = epochs(2)
    fork = log.fork(B, 2)
    for _ in range(5):
        log.epoch_on(B, fork)
    log.fast_forward(B, fork)
    log.reconcile(B)
    log.epoch(A)
    log.epoch(A)
    assert subsumable(log.state, RetentionPolicy(3)) == (1, 3, 4, 5, 6), "2 is what the replay can be undone to"
    log.pin(A, 4)
    assert subsumable(log.state, RetentionPolicy(3)) == (1, 3, 5, 6)


def test_a_commit_that_a_switch_made_void_is_not_waited_for() -> None:
    log = epochs(3, confirm=False)
    log.rollback(B, 1)
    log.reconcile(B)
    log.epoch(A)
    assert subsumable(log.state, RetentionPolicy(1)) == (1, 2, 3)
    answer = log.confirm(A, 2)
    assert isinstance(answer, AlreadyDone) and answer.outcome is Outcome.ALREADY_CONFIRMED
