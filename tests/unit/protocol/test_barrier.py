"""Barriers and their alignment (I12): a channel is whole and of one attempt, or the subtask declines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.protocol.acknowledgements import Decline, verify
from pipeline.protocol.barrier import (
    Barrier,
    BarrierAligner,
    BarrierEvent,
    ChannelDigest,
    ChannelSum,
    SubtaskIdentity,
    acknowledgement,
    carry,
)
from pipeline.protocol.errors import ProtocolViolation, SubtaskDeclined
from pipeline.protocol.ids import CheckpointId, FencingToken
from pipeline.protocol.reasons import CheckpointFailureReason
from pipeline.protocol.records import SubtaskKey

CHECKPOINT, TOKEN = CheckpointId(7), FencingToken(12)
ME = SubtaskIdentity(CHECKPOINT, TOKEN, level=1, subtask=0)


def _sum(payloads: list[bytes]) -> ChannelSum:
    digest = ChannelDigest()
    for payload in payloads:
        digest.add("op", "source", payload)
    return digest.sum()


def _barrier(sender: int, payloads: list[bytes], **changes: object) -> Barrier:
    fields: dict[str, object] = {
        "checkpoint_id": CHECKPOINT,
        "token": TOKEN,
        "level": 0,
        "subtask": sender,
        "channels": {0: _sum(payloads)},
        "ack": {"rows": len(payloads)},
    }
    return Barrier(**{**fields, **changes})  # type: ignore[arg-type]


def _feed(aligner: BarrierAligner, channel: int, payloads: list[bytes]) -> None:
    for sequence, payload in enumerate(payloads):
        aligner.buffer(channel, sequence, "op", "source", payload)


def _declined(aligner: BarrierAligner) -> CheckpointFailureReason:
    outcome = aligner.close()
    assert isinstance(outcome, Decline)
    return outcome.reason


@given(st.lists(st.lists(st.binary(max_size=8), max_size=4), min_size=1, max_size=4), st.randoms())
def test_whole_channels_align_in_any_order_of_arrival(channels: list[list[bytes]], random: object) -> None:
    aligner = BarrierAligner(ME, len(channels))
    order = list(range(len(channels)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for channel in order:
        _feed(aligner, channel, channels[channel])
        aligner.barrier(channel, BarrierEvent(_barrier(channel, channels[channel])))
    outcome = aligner.close()
    assert not isinstance(outcome, Decline)
    assert [event.barrier.subtask for event in outcome] == list(range(len(channels)))


def test_a_dropped_last_buffer_is_a_decline() -> None:
    aligner = BarrierAligner(ME, 1)
    _feed(aligner, 0, [b"a", b"b"])
    aligner.barrier(0, BarrierEvent(_barrier(0, [b"a", b"b", b"c"])))
    assert _declined(aligner) is CheckpointFailureReason.CHANNEL_INCOMPLETE


def test_a_dropped_middle_buffer_is_a_decline() -> None:
    aligner = BarrierAligner(ME, 1)
    assert aligner.buffer(0, 0, "op", "source", b"a")
    assert not aligner.buffer(0, 2, "op", "source", b"c")
    aligner.barrier(0, BarrierEvent(_barrier(0, [b"a", b"b", b"c"])))
    assert _declined(aligner) is CheckpointFailureReason.CHANNEL_INCOMPLETE


def test_a_missing_barrier_is_a_decline_that_names_the_channel() -> None:
    aligner = BarrierAligner(ME, 2)
    _feed(aligner, 0, [b"a"])
    aligner.barrier(0, BarrierEvent(_barrier(0, [b"a"])))
    outcome = aligner.close()
    assert isinstance(outcome, Decline) and "channel 1" in outcome.detail
    assert outcome.reason is CheckpointFailureReason.CHANNEL_INCOMPLETE


def test_other_content_than_the_barrier_states_is_a_digest_mismatch() -> None:
    aligner = BarrierAligner(ME, 1)
    _feed(aligner, 0, [b"x"])
    aligner.barrier(0, BarrierEvent(_barrier(0, [b"y"])))
    assert _declined(aligner) is CheckpointFailureReason.CHANNEL_DIGEST_MISMATCH


@pytest.mark.parametrize("change", [{"checkpoint_id": 6}, {"token": 11}])
def test_a_barrier_of_another_epoch_or_token_is_refused(change: dict[str, object]) -> None:
    aligner = BarrierAligner(ME, 1)
    aligner.barrier(0, BarrierEvent(_barrier(0, [], **change)))
    assert _declined(aligner) is CheckpointFailureReason.CHANNEL_DIGEST_MISMATCH


def test_a_second_barrier_and_a_buffer_after_the_barrier_are_refused() -> None:
    for late in ("barrier", "buffer"):
        aligner = BarrierAligner(ME, 1)
        event = BarrierEvent(_barrier(0, []))
        aligner.barrier(0, event)
        if late == "barrier":
            aligner.barrier(0, event)
        else:
            assert not aligner.buffer(0, 0, "op", "source", b"late")
        assert _declined(aligner) is CheckpointFailureReason.CHANNEL_INCOMPLETE


def test_a_row_of_an_unknown_channel_is_refused() -> None:
    aligner = BarrierAligner(ME, 1)
    aligner.barrier(3, BarrierEvent(_barrier(3, [])))
    assert not aligner.buffer(0, 0, "op", "source", b"drained")
    assert _declined(aligner) is CheckpointFailureReason.CHANNEL_INCOMPLETE


def test_the_first_decline_stays_and_later_events_are_drained() -> None:
    aligner = BarrierAligner(ME, 2)
    first = SubtaskIdentity(CHECKPOINT, TOKEN, 0, 1).decline(CheckpointFailureReason.BAD_RECORD, "line 3")
    second = SubtaskIdentity(CHECKPOINT, TOKEN, 0, 0).decline(CheckpointFailureReason.IO_EXCEPTION, "later")
    aligner.cancel(first)
    aligner.cancel(second)
    aligner.barrier(0, BarrierEvent(_barrier(0, [b"x"])))
    assert aligner.close() == first


def test_closing_twice_is_a_protocol_violation() -> None:
    aligner = BarrierAligner(ME, 0)
    assert aligner.close() == ()
    with pytest.raises(ProtocolViolation, match="closed twice"):
        aligner.close()


def test_two_attempts_have_equal_digests_only_if_all_their_channels_and_acks_are_equal() -> None:
    same = _barrier(0, [b"a"])
    assert same.digest == _barrier(0, [b"a"]).digest
    assert same.digest != _barrier(0, [b"b"]).digest
    assert same.digest != _barrier(0, [b"a"], ack={"rows": 9}).digest
    assert same.digest != _barrier(0, [b"a"], consumed={0: "other"}).digest


def test_a_barrier_event_survives_the_wire_and_carries_each_attempt_once() -> None:
    lower = _barrier(0, [b"a"])
    upper = _barrier(0, [], level=1, consumed={0: lower.digest})
    event = BarrierEvent(upper, carry([BarrierEvent(lower), BarrierEvent(lower)]))
    assert BarrierEvent.decode(event.encode()) == event
    assert carry([event, event]) == (lower, upper)


def test_two_attempts_of_one_sender_consumed_by_two_subtasks_are_found_at_the_driver() -> None:
    """I12: each receiver saw a consistent attempt; only comparing all copies of all acks shows the mix."""
    one, other = _barrier(0, [b"a"]), _barrier(0, [b"b"])
    first = _barrier(0, [], level=1, channels={}, consumed={0: one.digest})
    second = _barrier(1, [], level=1, channels={}, consumed={0: other.digest})
    copies = carry([BarrierEvent(first, (one,)), BarrierEvent(second, (other,))])
    expected = [SubtaskKey(0, 0), SubtaskKey(1, 0), SubtaskKey(1, 1)]
    with pytest.raises(SubtaskDeclined) as caught:
        verify(CHECKPOINT, TOKEN, expected, [acknowledgement(barrier) for barrier in copies])
    assert caught.value.details["reason"] == "ATTEMPTS_MIXED"
