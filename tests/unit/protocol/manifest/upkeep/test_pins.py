"""Readers pin a checkpoint while they read it (I8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milepost.errors import InvalidRequest, NotFound, ProtocolViolation
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.manifest.upkeep.pins import MAX_PINS, live_pins
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import copy_pin_name, savepoint_root
from milepost.protocol.records.manifest_state import Pin
from milepost.protocol.retention.retention import RetentionPolicy, retention_roots, subsumable
from milepost_testkit.jobs.job_log import MINUTE_MS, A, B, assert_refused, epochs


def test_a_pinned_checkpoint_is_a_root_until_it_is_unpinned() -> None:
    """I8: regardless of the policy."""
    log = epochs(3)
    assert isinstance(log.pin(B, 1), Transition)
    assert retention_roots(log.state) == {1, 3}
    assert subsumable(log.state, RetentionPolicy(1)) == (2,)
    assert_refused(log, ProtocolViolation, lambda: log.subsume(A, (1,)))
    assert isinstance(log.unpin(A), Transition)
    assert subsumable(log.state, RetentionPolicy(1)) == (1, 2)


def test_two_readers_hold_a_checkpoint_independently() -> None:
    log = epochs(2)
    log.pin(A, 1, "z")
    log.pin(B, 1, "a")
    assert [pin.name for pin in log.state.pins] == ["a", "z"]
    log.unpin(B, "a")
    assert subsumable(log.state, RetentionPolicy(1)) == ()


def test_the_same_reader_holds_longer_or_another_one() -> None:
    log = epochs(2)
    log.pin(A, 1)
    log.now_ms += 10
    log.pin(A, 1, hold_ms=2 * MINUTE_MS)
    assert log.state.pins == (Pin("reader", CheckpointId(1), log.now_ms + 2 * MINUTE_MS),)
    log.pin(A, 2)
    assert [pin.checkpoint_id for pin in log.state.pins] == [2]


def test_the_pin_of_a_dead_reader_expires() -> None:
    """Its time is over by the store's clock: the next trigger takes the pin off the list, and not earlier."""
    log = epochs(2)
    log.pin(B, 1)
    log.now_ms += MINUTE_MS - 1
    assert live_pins(log.state, log.now_ms) == log.state.pins
    log.epoch(A)
    assert [pin.checkpoint_id for pin in log.state.pins] == [1]
    log.now_ms += 1
    assert subsumable(log.state, RetentionPolicy(1)) == (2,), "still listed, so still kept"
    log.trigger(A)
    assert log.state.pins == ()
    gone = log.unpin(B)
    assert isinstance(gone, AlreadyDone) and gone.outcome is Outcome.NOT_PINNED


def test_in_a_job_that_has_ended_a_collection_takes_a_dead_copys_pin_off_the_list() -> None:
    """No trigger ever comes to it; what was copied is garbage once the time is over, and not earlier."""
    log = epochs(1)
    root = savepoint_root("before", "0123456789abcdef" * 2)
    log.pin(B, 1, copy_pin_name(root))
    log.pin(B, 1, "reader", hold_ms=2 * MINUTE_MS)
    log.cancel(A)
    log.now_ms += MINUTE_MS - 1
    assert_refused(log, ProtocolViolation, lambda: log.list_garbage(A, (root,)))
    log.now_ms += 1
    assert isinstance(log.list_garbage(A, (root,)), Transition)
    assert [pin.name for pin in log.state.pins] == ["reader"]
    assert root in [entry.prefix for entry in log.state.garbage]


def test_a_checkpoint_that_is_not_retained_cannot_be_pinned() -> None:
    log = epochs(2)
    log.subsume(A, (1,))
    assert_refused(log, NotFound, lambda: log.pin(B, 1))
    assert_refused(log, NotFound, lambda: log.pin(B, 9))


@pytest.mark.parametrize(("name", "hold_ms"), [("", MINUTE_MS), ("reader", 0), ("reader", -1)])
def test_a_pin_has_a_name_and_an_end(name: str, hold_ms: int) -> None:
    log = epochs(1)
    assert_refused(log, InvalidRequest, lambda: log.pin(A, 1, name, hold_ms))


def test_the_number_of_readers_is_bounded() -> None:
    """I2: the manifest stays small. A reader that holds one already may hold it longer."""
    log = epochs(1)
    pins = tuple(Pin(f"r-{number:03d}", CheckpointId(1), log.now_ms + 5) for number in range(MAX_PINS))
    log.state = replace(log.state, pins=pins)
    assert_refused(log, InvalidRequest, lambda: log.pin(A, 1, "one more"))
    assert isinstance(log.pin(A, 1, "r-007"), Transition)
    log.now_ms += 5
    assert isinstance(log.pin(A, 1, "one more"), Transition), "those whose time is over hold nothing"
