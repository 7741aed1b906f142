"""Which log entries may become tombstones, and how the state records that (I6)."""

from __future__ import annotations

from dataclasses import replace

from milepost.errors import ProtocolViolation
from milepost.protocol.manifest.invariants import faults
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome
from milepost.protocol.manifest.transaction.events import CheckpointsSubsumed, LogCompacted
from milepost.protocol.manifest.upkeep.compaction import compactable, horizon
from milepost.protocol.records.ids import SessionId
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import A, B, JobLog, epochs


def test_only_entries_older_than_everything_retained_may_be_compacted() -> None:
    log = epochs(3)
    first, _, newest = log.state.checkpoints
    assert horizon(log.state) == first.token
    log.pin(B, 2, "reader")
    log.subsume(A, (1,), last=1)
    assert horizon(log.state) == log.state.checkpoints[0].token, "a pinned one is retained"
    log.unpin(B, "reader")
    log.subsume(A, (2,), last=1)
    assert horizon(log.state) == newest.token
    assert compactable(log.state, 2) == range(1, 3)
    assert compactable(log.state, 1_000) == range(1, newest.token)


def test_without_checkpoints_all_but_the_head_and_pending_grants_may_be_compacted() -> None:
    log = JobLog()
    assert list(compactable(log.state, 10)) == []
    for _ in range(2):
        log.trigger(A)
        log.abort(A)
    assert horizon(log.state) == log.state.version
    log.trigger(A)
    log.rebind(A)
    assert horizon(log.state) == log.pending.prefixes[0]


def test_the_opening_of_an_open_fork_and_an_unfollowed_switch_stay_whole() -> None:
    log = JobLog()
    fork = log.fork(B, 0)
    opened = log.state.version
    for _ in range(3):
        log.epoch(A)
    log.subsume(A, (1, 2), last=1)
    assert horizon(log.state) == opened
    log.dispose_fork(B, fork)
    assert horizon(log.state) > opened
    log.rollback(B, 0)
    switched = log.state.version
    assert log.state.reconciliation is not None
    assert horizon(log.state) <= switched
    log.state = replace(log.state, checkpoints=(), timelines=log.state.timelines[-1:])
    assert horizon(log.state) == switched


def test_nothing_is_compacted_while_an_end_has_something_to_clean_up() -> None:
    """The next session discards what the cancel aborted, as listed in its entry."""
    log = epochs(2)
    log.compact(B, 1)
    log.trigger(A)
    log.cancel(B)
    assert list(compactable(log.state, 10)) == []
    version = log.state.version
    for through in (1, 2):
        late = log.compact(B, through)
        assert isinstance(late, AlreadyDone), "entries that were replaced before the cancel are no fault after it"
    assert (log.state.version, log.state.compacted) == (version, 1)
    log.clean(B)
    assert list(compactable(log.state, 10)) != []


def test_compaction_progress_is_a_fact_from_any_session_and_never_decreases() -> None:
    log = epochs(3)
    log.compact(B, 2)
    assert (log.events[-1], log.state.compacted) == (LogCompacted(log.now_ms, 2, SessionId(B)), 2)
    assert log.compact(A, 1).outcome is Outcome.ALREADY_COMPACTED  # type: ignore[union-attr]
    assert compactable(log.state, 10).start == 3
    version = log.state.version
    with wording.raises(ProtocolViolation):
        log.compact(A, log.state.checkpoints[0].token)
    with wording.raises(ProtocolViolation):
        log.subsume(A, (1,), last=2, compacted=log.state.checkpoints[0].token)
    assert (log.state.version, log.state.compacted) == (version, 2)


def test_a_subsumption_carries_the_fact_so_that_compaction_needs_no_entries_of_its_own() -> None:
    log = epochs(3)
    log.subsume(A, (1,), last=2, compacted=2)
    assert isinstance(log.events[-1], CheckpointsSubsumed)
    assert log.state.compacted == 2
    log.subsume(A, (2,), last=1, compacted=1)
    assert log.state.compacted == 2


def test_a_state_that_marks_needed_entries_as_compacted_is_corrupt() -> None:
    log = epochs(2)
    assert faults(log.state) == []
    for compacted in (-1, log.state.checkpoints[0].token, log.state.version):
        assert any("I6" in fault for fault in faults(replace(log.state, compacted=compacted)))
