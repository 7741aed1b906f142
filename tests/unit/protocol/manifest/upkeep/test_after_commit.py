"""Confirmations, subsumption and two-phase deletion (I8, I11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milepost.errors import InvalidRequest, ProtocolViolation
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.manifest.transaction.events import CheckpointsSubsumed, GarbageDeleted, SinksConfirmed
from milepost.protocol.manifest.transaction.requests import ConfirmSinksRequest
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import metadata_key, token_prefix
from milepost.protocol.records.manifest_state import Garbage
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.retention.retention import (
    RetentionPolicy,
    deletable,
    is_discarded,
    minimum_grace_ms,
    plan_retention,
    select_checkpoints,
    subsumable,
    unreferenced,
)
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import TIMEOUT_MS, A, B, JobLog, assert_refused, epochs

GRACE_MS = minimum_grace_ms(TIMEOUT_MS)


def run_key(checkpoint_id: int, token: int, name: str = "state/carriers/run.parquet") -> str:
    return f"chk-{checkpoint_id:020d}/t{token:020d}/{name}"


def outcome(answer: object) -> Outcome:
    assert isinstance(answer, AlreadyDone)
    return answer.outcome


def test_a_confirmation_is_accepted_once_from_anybody_and_stays() -> None:
    """I11: a fact, from any session and token; monotone; repeated ones change nothing."""
    log = JobLog()
    log.trigger(A)
    log.complete(A, sinks=("lake", "late"))
    answer = log.confirm(B, 1, "late")
    assert isinstance(answer, Transition)
    assert answer.event == SinksConfirmed(log.now_ms, CheckpointId(1), ("late",), B)  # type: ignore[arg-type]
    assert log.state.unconfirmed()[0].unconfirmed == ("lake",)
    assert outcome(log.confirm(A, 1, "late")) is Outcome.ALREADY_CONFIRMED
    log.confirm(A, 1, "lake")
    assert log.state.unconfirmed() == ()


def test_one_confirmation_names_every_sink_that_has_committed() -> None:
    """I11: sinks that had confirmed before are not reported again."""
    log = JobLog()
    log.trigger(A)
    log.complete(A, sinks=("lake", "late", "top"))
    log.confirm(A, 1, "late")
    answer = log.confirm(A, 1, "top", "late", "lake")
    assert isinstance(answer, Transition)
    assert answer.event == SinksConfirmed(log.now_ms, CheckpointId(1), ("lake", "top"), A)  # type: ignore[arg-type]
    assert log.state.unconfirmed() == ()
    assert_refused(log, ProtocolViolation, lambda: log.confirm(A, 1, "lake", "other"))


def test_a_confirmation_and_a_subsumption_are_one_transition() -> None:
    """I8: what is subsumed may rest on the confirmation that comes with it, and on nothing less."""
    log = epochs(1)
    log.trigger(A)
    log.complete(A)
    confirms = ConfirmSinksRequest(A, CheckpointId(2), ("lake",))  # type: ignore[arg-type]
    assert_refused(log, ProtocolViolation, lambda: log.subsume(A, (1,)))
    answer = log.subsume(A, (1,), confirms=confirms)
    assert isinstance(answer, Transition)
    confirmed = SinksConfirmed(log.now_ms, CheckpointId(2), ("lake",), A)  # type: ignore[arg-type]
    assert answer.event == CheckpointsSubsumed(log.now_ms, (CheckpointId(1),), (), A, None, confirmed)  # type: ignore[arg-type]
    assert [(one.checkpoint_id, one.unconfirmed) for one in log.state.checkpoints] == [(2, ())]
    assert outcome(log.subsume(A, (1,), confirms=confirms)) is Outcome.NOTHING_TO_SUBSUME


def test_a_confirmation_is_recorded_although_nothing_is_subsumed_with_it() -> None:
    """I11: a fact waits for no leader; and a refused subsumption takes nothing half."""
    log = epochs(1)
    log.trigger(A)
    log.complete(A)
    confirms = ConfirmSinksRequest(A, CheckpointId(2), ("lake",))  # type: ignore[arg-type]
    assert_refused(log, ProtocolViolation, lambda: log.subsume(A, (2,), confirms=confirms))
    log.trigger(B)
    answer = log.subsume(A, (1,), confirms=confirms)
    assert isinstance(answer, Transition)
    assert answer.event == SinksConfirmed(log.now_ms, CheckpointId(2), ("lake",), A)  # type: ignore[arg-type]
    assert [one.checkpoint_id for one in log.state.checkpoints] == [1, 2]


def test_a_confirmation_of_a_subsumed_checkpoint_is_already_done() -> None:
    log = epochs(2)
    log.subsume(A, (1,))
    assert outcome(log.confirm(B, 1)) is Outcome.ALREADY_CONFIRMED


def test_a_confirmation_before_the_commit_point_is_a_violation() -> None:
    """Publish before complete would be visible without being committed."""
    log = JobLog()
    log.trigger(A)
    assert_refused(log, ProtocolViolation, lambda: log.confirm(A, 1))
    assert_refused(log, ProtocolViolation, lambda: log.confirm(A, 2))
    assert_refused(log, ProtocolViolation, lambda: log.confirm(A, 0))


def test_a_confirmation_of_a_sink_the_checkpoint_does_not_have_is_a_violation() -> None:
    log = epochs(1)
    assert_refused(log, ProtocolViolation, lambda: log.confirm(A, 1, "other"))


def test_retention_keeps_the_newest_the_unconfirmed_and_every_root() -> None:
    """I8: roots are retained regardless of the policy, and so is what a table shows while it waits for one."""
    log = JobLog()
    for number in range(7):
        log.epoch(A, confirm=number != 2)
    assert subsumable(log.state, RetentionPolicy(2)) == (1, 4, 5)
    assert plan_retention(
        log.state.checkpoints, {CheckpointId(4)} | select_checkpoints(log.state.checkpoints, RetentionPolicy(2))
    ) == (1, 5)
    assert (
        plan_retention(log.state.checkpoints[::-1], select_checkpoints(log.state.checkpoints, RetentionPolicy(99)))
        == ()
    )


def test_retention_keeps_savepoints() -> None:
    """A savepoint is owned by a person and never subsumed."""
    log = epochs(3)
    log.record_savepoint(A, 1)
    assert subsumable(log.state, RetentionPolicy(1)) == (2,)


def test_retention_keeps_the_bases_of_other_timelines() -> None:
    """I8: every timeline's head, and the base of its pending checkpoint."""
    log = epochs(4)
    log.trigger(A)
    log.fork(B, 2)
    assert subsumable(log.state, RetentionPolicy(1)) == (1, 3)


@pytest.mark.parametrize("last", [0, -1])
def test_a_policy_that_would_drop_the_newest_is_refused(last: int) -> None:
    with wording.raises(InvalidRequest):
        RetentionPolicy(last)


def test_a_key_is_garbage_only_if_no_retained_checkpoint_refers_to_it() -> None:
    """I8: runs are carried by reference, so reachability decides, not the prefix."""
    shared, old, new = run_key(1, 3, "shared"), run_key(1, 3, "old"), run_key(2, 7, "new")
    assert unreferenced([[shared, new]], [[old, shared], [old]]) == (old,)
    assert unreferenced([], []) == ()


def test_a_token_directory_that_no_retained_checkpoint_needs_is_one_entry() -> None:
    """I8: the manifest value must not grow with the number of files of a subsumed checkpoint."""
    old, carried = run_key(1, 3, "state/u/old"), run_key(1, 3, "state/u/carried")
    own = [old, carried, run_key(1, 3, "_metadata"), *(run_key(1, 3, f"metrics/0-{n}-a0.json") for n in range(100))]
    directory = run_key(1, 3, "")
    assert unreferenced([[run_key(2, 7)]], [own]) == (directory,)
    kept = unreferenced([[run_key(2, 7), carried]], [own])
    assert kept == (run_key(1, 3, "_metadata"), run_key(1, 3, "metrics/"), old)
    assert unreferenced([], [["inputs/" + "a" * 64 + ".json"]]) == ()


def test_directories_are_garbage_as_a_whole_unless_they_contain_retained_objects() -> None:
    """I8: the directory of a token, or of its metrics; never that of a whole checkpoint."""
    log = epochs(3)
    first, second, _ = log.state.checkpoints
    directories = (token_prefix(CheckpointId(1), first.token), token_prefix(CheckpointId(2), second.token) + "metrics/")
    assert isinstance(log.subsume(A, (1,), directories), Transition)
    assert set(directories) <= {entry.prefix for entry in log.state.garbage}
    live = token_prefix(CheckpointId(3), log.state.checkpoints[-1].token)
    for refused_entry in (live, "chk-00000000000000000001/", token_prefix(CheckpointId(1), first.token) + "state/"):
        assert_refused(log, ProtocolViolation, lambda key=refused_entry: log.subsume(A, (2,), (key,)))


def test_only_output_that_is_known_to_be_lost_is_discarded_at_the_sinks() -> None:
    """I9: tokens of an aborted checkpoint and losing tokens of a retained one; a subsumed one is unknown: retain."""
    log = JobLog()
    log.trigger(A)
    losing = log.pending.token
    log.rebind(A)
    log.complete(A)
    log.confirm(A, 1)
    winning = log.state.checkpoints[0].token
    assert is_discarded(log.state, CheckpointId(1), losing)
    assert not is_discarded(log.state, CheckpointId(1), winning)
    log.trigger(B)
    pending = log.pending
    assert not is_discarded(log.state, pending.checkpoint_id, pending.token)
    log.abort(B, reason=CheckpointFailureReason.LEADER_LOST)
    assert is_discarded(log.state, pending.checkpoint_id, pending.token)
    log.epoch(A)
    log.subsume(A, (1,))
    assert not is_discarded(log.state, CheckpointId(1), losing)
    assert not is_discarded(log.state, CheckpointId(1), winning)


def test_subsuming_lists_the_unreferenced_keys_as_garbage() -> None:
    log = epochs(3)
    keys = (run_key(1, 3), metadata_key(CheckpointId(1), log.state.checkpoints[0].token))
    answer = log.subsume(A, (1, 2), keys)
    assert isinstance(answer, Transition)
    assert answer.event == CheckpointsSubsumed(log.now_ms, (CheckpointId(1), CheckpointId(2)), keys, A)  # type: ignore[arg-type]
    assert [checkpoint.checkpoint_id for checkpoint in log.state.checkpoints] == [3]
    assert set(keys) <= {entry.prefix for entry in log.state.garbage}


def test_a_repeated_subsumption_finds_nothing() -> None:
    log = epochs(2)
    log.subsume(A, (1,))
    assert outcome(log.subsume(A, (1,))) is Outcome.NOTHING_TO_SUBSUME


def test_subsumption_is_left_to_the_session_that_leads() -> None:
    """An outdated session may carry an outdated policy."""
    log = epochs(2)
    log.trigger(B)
    assert outcome(log.subsume(A, (1,))) is Outcome.NOT_LEADER


def test_checkpoints_retained_by_policy_or_root_cannot_be_subsumed() -> None:
    log = epochs(2)
    log.epoch(A, confirm=False)
    assert_refused(log, ProtocolViolation, lambda: log.subsume(A, (3,)))
    assert_refused(log, ProtocolViolation, lambda: log.subsume(A, (1, 2), last=2))


@pytest.mark.parametrize(
    "key",
    [
        "inputs/" + "a" * 64 + ".json",
        "manifest/09999999999999999999.json",
        run_key(1, 3, "../../chk-1/x"),
        token_prefix(CheckpointId(1), 3) + "state/",  # type: ignore[arg-type]
        token_prefix(CheckpointId(4), 99),  # type: ignore[arg-type]
        run_key(4, 99),
    ],
)
def test_a_garbage_key_that_could_be_live_is_a_violation(key: str) -> None:
    """I8: only objects below a checkpoint older than every pending one; an input record is never subsumed."""
    log = epochs(3)
    log.trigger(A)
    assert_refused(
        log,
        ProtocolViolation,
        lambda: log.subsume(A, (1,), (key,)),
    )


def test_the_metadata_of_a_retained_checkpoint_cannot_become_garbage() -> None:
    log = epochs(2)
    head = log.state.head()
    assert head is not None
    assert_refused(log, ProtocolViolation, lambda: log.subsume(A, (1,), (head.metadata.key,)))


def aborted_then_led_by(session: str) -> JobLog:
    """A job with garbage of an aborted checkpoint 1, and a later leader whose epoch has ended."""
    log = JobLog()
    log.trigger(A)
    log.abort(A, reason=CheckpointFailureReason.LEADER_LOST)
    log.now_ms += 1
    log.epoch(session)
    return log


def test_garbage_is_deleted_by_a_later_leader_after_the_grace_period() -> None:
    """I8: two phases."""
    log = aborted_then_led_by(B)
    old = log.state.garbage[0]
    listed_at_ms = old.since_ms
    assert deletable(log.state, B, listed_at_ms + GRACE_MS - 1, GRACE_MS) == ()  # type: ignore[arg-type]
    assert deletable(log.state, A, listed_at_ms + GRACE_MS, GRACE_MS) == ()  # type: ignore[arg-type]
    log.now_ms = listed_at_ms + GRACE_MS
    assert deletable(log.state, B, log.now_ms, GRACE_MS) == (old,)  # type: ignore[arg-type]
    answer = log.forget(B, (old.prefix,), GRACE_MS)
    assert isinstance(answer, Transition)
    assert answer.event == GarbageDeleted(log.now_ms, (old.prefix,), B)  # type: ignore[arg-type]
    assert old not in log.state.garbage
    assert outcome(log.forget(B, (old.prefix,), GRACE_MS)) is Outcome.NOTHING_TO_FORGET


def test_garbage_of_the_current_leader_waits_for_a_later_one() -> None:
    """I8: its own readers and Spark job may still look at it."""
    log = aborted_then_led_by(B)
    own = [entry for entry in log.state.garbage if entry.since_version > log.state.garbage[0].since_version]
    log.now_ms += 2 * GRACE_MS
    assert own
    assert not set(own) & set(deletable(log.state, B, log.now_ms, GRACE_MS))  # type: ignore[arg-type]
    assert_refused(log, ProtocolViolation, lambda: log.forget(B, (own[0].prefix,), GRACE_MS))


def test_garbage_near_a_pending_checkpoint_of_another_timeline_is_live() -> None:
    """I8: everything from the lowest pending id on is live, across timelines."""
    log = aborted_then_led_by(B)
    log.trigger(B)
    log.now_ms += 2 * GRACE_MS
    old = log.state.garbage[0]
    assert old in deletable(log.state, B, log.now_ms, GRACE_MS)  # type: ignore[arg-type]
    lowest = replace(log.pending, checkpoint_id=CheckpointId(1))
    live = replace(log.state.timeline(), pending=lowest)
    assert deletable(replace(log.state, timelines=(live,)), B, log.now_ms, GRACE_MS) == ()  # type: ignore[arg-type]


def test_an_entry_outside_of_every_checkpoint_is_never_deleted() -> None:
    """Unknown means keep."""
    log = aborted_then_led_by(B)
    odd = Garbage("manifest/09999999999999999999.json", 1, 0)
    log.state = replace(log.state, garbage=(odd,))
    assert deletable(log.state, B, log.now_ms + 2 * GRACE_MS, GRACE_MS) == ()  # type: ignore[arg-type]


def test_a_job_without_a_leader_deletes_nothing_and_subsumes_nothing() -> None:
    log = JobLog()
    assert deletable(log.state, A, log.now_ms, 0) == ()  # type: ignore[arg-type]
    assert outcome(log.subsume(A, ())) is Outcome.NOT_LEADER
    assert outcome(log.forget(A, (), 0)) is Outcome.NOT_LEADER


def test_the_grace_period_is_longer_than_any_timeout() -> None:
    assert minimum_grace_ms(TIMEOUT_MS) > 2 * TIMEOUT_MS
