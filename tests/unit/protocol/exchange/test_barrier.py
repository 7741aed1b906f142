"""Barriers and acknowledgements on the wire (I12): each channel is complete, from one attempt, or declined."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import ProtocolViolation, SubtaskDeclined
from milepost.protocol.exchange.acknowledgements import verify
from milepost.protocol.exchange.barrier import (
    AckEvent,
    Barrier,
    BufferHeader,
    ChannelDigest,
    ChannelSum,
    SubtaskAck,
    SubtaskIdentity,
    acknowledgement,
    distinct_acknowledgements,
)
from milepost.protocol.exchange.channel_check import ChannelCheck
from milepost.protocol.exchange.declines import Decline
from milepost.protocol.records.checkpoints import SubtaskKey
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit import wording

CHECKPOINT, TOKEN = CheckpointId(7), FencingToken(12)
HEADER = BufferHeader("op", "source", 5, None)
ME = SubtaskIdentity(CHECKPOINT, TOKEN, level=1, subtask=0)


def _sum(payloads: list[bytes]) -> ChannelSum:
    digest = ChannelDigest()
    for payload in payloads:
        digest.add(HEADER, payload)
    return digest.sum()


def _barrier(sender: int, payloads: list[bytes], **changes: object) -> Barrier:
    fields: dict[str, object] = {
        "checkpoint_id": CHECKPOINT,
        "token": TOKEN,
        "level": 0,
        "subtask": sender,
        "channels": {0: _sum(payloads)},
    }
    return Barrier(**{**fields, **changes})  # type: ignore[arg-type]


def _ack(barrier: Barrier, **changes: object) -> SubtaskAck:
    fields: dict[str, object] = {
        "checkpoint_id": barrier.checkpoint_id,
        "token": barrier.token,
        "level": barrier.level,
        "subtask": barrier.subtask,
        "barrier": barrier.digest,
        "ack": {"rows": 1},
    }
    return SubtaskAck(**{**fields, **changes})  # type: ignore[arg-type]


def _feed(check: ChannelCheck, channel: int, payloads: list[bytes]) -> None:
    for sequence, payload in enumerate(payloads):
        check.buffer(channel, sequence, HEADER, payload)


def _declined(check: ChannelCheck) -> CheckpointFailureReason:
    outcome = check.close()
    assert isinstance(outcome, Decline)
    return outcome.reason


@given(st.lists(st.lists(st.binary(max_size=8), max_size=4), min_size=1, max_size=4), st.randoms())
def test_complete_channels_align_in_any_order_of_arrival(channels: list[list[bytes]], random: object) -> None:
    check = ChannelCheck(ME, len(channels))
    order = list(range(len(channels)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for channel in order:
        _feed(check, channel, channels[channel])
        barrier = _barrier(channel, channels[channel])
        check.barrier(channel, barrier)
        check.ack(channel, AckEvent(_ack(barrier)))
    outcome = check.close()
    assert not isinstance(outcome, Decline)
    assert [event.own.subtask for event in outcome] == list(range(len(channels)))


def test_a_dropped_last_buffer_is_a_decline() -> None:
    check = ChannelCheck(ME, 1)
    _feed(check, 0, [b"a", b"b"])
    barrier = _barrier(0, [b"a", b"b", b"c"])
    check.barrier(0, barrier)
    check.ack(0, AckEvent(_ack(barrier)))
    assert _declined(check) is CheckpointFailureReason.CHANNEL_INCOMPLETE


def test_a_dropped_middle_buffer_is_a_decline() -> None:
    check = ChannelCheck(ME, 1)
    assert check.buffer(0, 0, HEADER, b"a")
    assert not check.buffer(0, 2, HEADER, b"c")
    check.barrier(0, _barrier(0, [b"a", b"b", b"c"]))
    assert _declined(check) is CheckpointFailureReason.CHANNEL_INCOMPLETE


def test_a_missing_barrier_is_a_decline_that_names_the_channel() -> None:
    check = ChannelCheck(ME, 2)
    _feed(check, 0, [b"a"])
    check.barrier(0, _barrier(0, [b"a"]))
    outcome = check.close()
    assert isinstance(outcome, Decline) and "channel 1" in outcome.detail
    assert outcome.reason is CheckpointFailureReason.CHANNEL_INCOMPLETE


def test_other_content_than_the_barrier_states_is_a_digest_mismatch() -> None:
    check = ChannelCheck(ME, 1)
    _feed(check, 0, [b"x"])
    check.barrier(0, _barrier(0, [b"y"]))
    assert _declined(check) is CheckpointFailureReason.CHANNEL_DIGEST_MISMATCH


@pytest.mark.parametrize("change", [{"checkpoint_id": 6}, {"token": 11}])
def test_a_barrier_of_another_epoch_or_token_is_refused(change: dict[str, object]) -> None:
    check = ChannelCheck(ME, 1)
    check.barrier(0, _barrier(0, [], **change))
    assert _declined(check) is CheckpointFailureReason.CHANNEL_DIGEST_MISMATCH


def test_a_second_barrier_and_a_buffer_after_the_barrier_are_refused() -> None:
    for late in ("barrier", "buffer"):
        check = ChannelCheck(ME, 1)
        event = _barrier(0, [])
        check.barrier(0, event)
        if late == "barrier":
            check.barrier(0, event)
        else:
            assert not check.buffer(0, 0, HEADER, b"late")
        assert _declined(check) is CheckpointFailureReason.CHANNEL_INCOMPLETE


def test_a_row_of_an_unknown_channel_is_refused() -> None:
    check = ChannelCheck(ME, 1)
    check.barrier(3, _barrier(3, []))
    assert not check.buffer(0, 0, HEADER, b"drained")
    assert _declined(check) is CheckpointFailureReason.CHANNEL_INCOMPLETE


def test_the_first_decline_stays_and_later_events_are_drained() -> None:
    check = ChannelCheck(ME, 2)
    first = SubtaskIdentity(CHECKPOINT, TOKEN, 0, 1).decline(CheckpointFailureReason.BAD_RECORD, "line 3")
    second = SubtaskIdentity(CHECKPOINT, TOKEN, 0, 0).decline(CheckpointFailureReason.IO_EXCEPTION, "later")
    check.cancel(first)
    check.cancel(second)
    check.barrier(0, _barrier(0, [b"x"]))
    assert check.close() == first


def test_closing_twice_is_a_protocol_violation() -> None:
    check = ChannelCheck(ME, 0)
    assert check.close() == ()
    with wording.raises(ProtocolViolation):
        check.close()


def test_two_attempts_have_equal_digests_only_if_all_their_channels_and_acks_are_equal() -> None:
    same = _ack(_barrier(0, [b"a"]))
    assert same.digest == _ack(_barrier(0, [b"a"])).digest
    assert same.digest != _ack(_barrier(0, [b"b"])).digest
    assert same.digest != _ack(_barrier(0, [b"a"]), ack={"rows": 9}).digest
    assert same.digest != _ack(_barrier(0, [b"a"]), consumed={0: "other"}).digest


def test_measurements_are_reported_and_do_not_distinguish_equal_attempts() -> None:
    """I12: measurements travel with an acknowledgement, but are not compared between attempts."""
    one, other = (_ack(_barrier(0, [b"a"]), measured={"total_ms": spent_ms}) for spent_ms in (7, 8))
    assert one.digest == other.digest
    told = distinct_acknowledgements(AckEvent.decode(AckEvent(one).encode()) for _ in range(2))
    assert [acknowledgement(ack).measured for ack in told] == [{"total_ms": 7}]
    assert len(distinct_acknowledgements([AckEvent(one), AckEvent(other)])) == 1


@pytest.mark.parametrize(
    "header",
    [
        BufferHeader("other", "source", 5, None),
        BufferHeader("op", "other", 5, None),
        BufferHeader("op", "source", None, None),
        BufferHeader("op", "source", 5, 0),
    ],
)
def test_a_buffer_with_another_header_is_another_channel(header: BufferHeader) -> None:
    """The stamp decides what is late, so it is part of what an attempt is (I12)."""
    digest = ChannelDigest()
    digest.add(header, b"a")
    assert digest.sum() != _sum([b"a"])


def test_an_ack_event_survives_the_wire_and_carries_each_attempt_once() -> None:
    barrier = _barrier(0, [b"a"])
    assert Barrier.decode(barrier.encode()) == barrier
    lower = _ack(barrier)
    upper = _ack(_barrier(0, [], level=1), consumed={0: lower.digest})
    event = AckEvent(upper, distinct_acknowledgements([AckEvent(lower), AckEvent(lower)]))
    assert AckEvent.decode(event.encode()) == event
    assert distinct_acknowledgements([event, event]) == (lower, upper)


def test_an_acknowledgement_before_its_barrier_twice_or_missing_is_refused() -> None:
    barrier = _barrier(0, [])
    for case in ("before", "twice", "missing"):
        check = ChannelCheck(ME, 1)
        if case == "before":
            check.ack(0, AckEvent(_ack(barrier)))
        check.barrier(0, barrier)
        for _ in range(2 if case == "twice" else 0):
            check.ack(0, AckEvent(_ack(barrier)))
        outcome = check.close()
        assert isinstance(outcome, Decline) and "acknowledgement" in outcome.detail, case
        assert outcome.reason is CheckpointFailureReason.CHANNEL_INCOMPLETE


def test_an_acknowledgement_of_another_barrier_is_a_digest_mismatch() -> None:
    """The buffers of one attempt followed by the acknowledgement of another."""
    check = ChannelCheck(ME, 1)
    check.barrier(0, _barrier(0, []))
    check.ack(0, AckEvent(_ack(_barrier(0, [], channels={0: _sum([]), 1: _sum([b"x"])}))))
    assert _declined(check) is CheckpointFailureReason.CHANNEL_DIGEST_MISMATCH


def test_a_cancel_marker_in_place_of_the_acknowledgement_is_passed_on() -> None:
    check = ChannelCheck(ME, 1)
    check.barrier(0, _barrier(0, []))
    decline = SubtaskIdentity(CHECKPOINT, TOKEN, 0, 0).decline(CheckpointFailureReason.IO_EXCEPTION, "the lake is full")
    check.cancel(decline)
    check.ack(0, AckEvent(_ack(_barrier(0, []))))
    assert check.close() == decline


def test_an_acknowledgement_of_an_unknown_channel_is_refused() -> None:
    check = ChannelCheck(ME, 0)
    check.ack(0, AckEvent(_ack(_barrier(0, []))))
    assert _declined(check) is CheckpointFailureReason.CHANNEL_INCOMPLETE


def test_the_driver_detects_two_attempts_of_a_sender_consumed_by_two_subtasks() -> None:
    """I12: each receiver saw a consistent attempt; only comparing all copies of all acks shows the mix."""
    one, other = _ack(_barrier(0, [b"a"])), _ack(_barrier(0, [b"b"]))
    first = _ack(_barrier(0, [], level=1, channels={}), consumed={0: one.digest})
    second = _ack(_barrier(1, [], level=1, channels={}), consumed={0: other.digest})
    copies = distinct_acknowledgements([AckEvent(first, (one,)), AckEvent(second, (other,))])
    expected = [SubtaskKey(0, 0), SubtaskKey(1, 0), SubtaskKey(1, 1)]
    with pytest.raises(SubtaskDeclined) as caught:
        verify(CHECKPOINT, TOKEN, expected, [acknowledgement(ack) for ack in copies])
    assert caught.value.details["reason"] == "ATTEMPTS_MIXED"
