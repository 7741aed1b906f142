"""When published files of a table may be listed and deleted: leadership, age, pending checkpoints (I8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.retention.pruning import is_scan_due, may_be_listed, may_prune
from milepost.protocol.retention.retention import minimum_grace_ms
from milepost_testkit.jobs.job_log import TIMEOUT_MS, A, B, epochs

GRACE_MS = minimum_grace_ms(TIMEOUT_MS)


def test_files_may_be_pruned_exactly_from_the_end_of_the_grace_period() -> None:
    """Whoever looked at the table before the listing has read what it found."""
    state = epochs(2).state
    listed = state.version - 1
    assert may_prune(state, None, listed, 1_000, 1_000 + GRACE_MS, GRACE_MS)
    assert not may_prune(state, None, listed, 1_000, 999 + GRACE_MS, GRACE_MS)


def test_only_a_leader_with_a_later_token_deletes() -> None:
    log = epochs(2)
    leader = log.state.timeline().leader
    assert leader is not None and leader.session_id == A
    assert not may_prune(log.state, A, leader.token, 0, GRACE_MS, GRACE_MS), "its own listing"
    assert not may_prune(log.state, B, leader.token - 1, 0, GRACE_MS, GRACE_MS), "it does not lead"
    assert may_prune(log.state, A, leader.token - 1, 0, GRACE_MS, GRACE_MS)
    listed = log.state.version
    log.epoch(B)
    assert may_prune(log.state, B, listed, 0, GRACE_MS, GRACE_MS)


def test_an_epoch_that_was_triggered_before_the_listing_keeps_the_files_until_it_ends() -> None:
    log = epochs(2)
    log.trigger(B)
    listed = log.state.version
    assert not may_prune(log.state, None, listed, 0, GRACE_MS, GRACE_MS)
    assert may_prune(log.state, None, log.pending.prefixes[0] - 1, 0, GRACE_MS, GRACE_MS)


def test_a_file_is_listed_only_below_a_checkpoint_that_this_job_has_ended() -> None:
    log = epochs(2)
    token = FencingToken(2)
    assert may_be_listed(log.state, CheckpointId(2), token)
    assert not may_be_listed(log.state, CheckpointId(0), token)
    assert not may_be_listed(log.state, CheckpointId(3), token), "no session of the job can have staged it"
    assert not may_be_listed(log.state, CheckpointId(2), FencingToken(log.state.version + 1))
    log.trigger(A)
    pending = log.pending.checkpoint_id
    assert not may_be_listed(log.state, pending, log.pending.token)
    assert not may_be_listed(log.state, CheckpointId(pending + 1), token)
    assert may_be_listed(log.state, CheckpointId(pending - 1), token)


@pytest.mark.parametrize(("retained", "periods"), [(2, 1), (10, 1), (11, 2), (21, 3)])
def test_the_first_epoch_of_a_grace_period_looks_and_of_several_when_more_is_retained(
    retained: int, periods: int
) -> None:
    """What a look costs grows with what is retained, so it comes less often."""
    state = epochs(retained).state
    every_ms = periods * GRACE_MS

    def due(before_ms: int, newest_ms: int) -> bool:
        *others, before, newest = state.checkpoints
        times = (replace(before, trigger_time_ms=before_ms), replace(newest, trigger_time_ms=newest_ms))
        return is_scan_due(replace(state, checkpoints=(*others, *times)), GRACE_MS)

    assert due(every_ms - 1, every_ms)
    assert not due(0, every_ms - 1)
    assert not due(every_ms, 2 * every_ms - 1)
    assert due(0, 5 * every_ms)


def test_the_first_epoch_of_a_job_scans() -> None:
    """No earlier checkpoint tells when the last scan was."""
    assert is_scan_due(epochs(1).state, GRACE_MS)
    assert not is_scan_due(epochs(0).state, GRACE_MS)
