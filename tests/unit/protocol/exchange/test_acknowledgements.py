"""All copies of all acknowledgements must form one consistent set of attempts (I7, I12)."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from milepost.errors import StateCorrupt, SubtaskDeclined
from milepost.protocol.exchange.acknowledgements import (
    Acknowledgement,
    ConsumedAttempt,
    SubtaskAnswer,
    TaskAcknowledgeResult,
    VerifiedAnswers,
    decode_answer,
    encode_answer,
    verify,
)
from milepost.protocol.exchange.declines import Decline
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import EXPECTED

CHECKPOINT, TOKEN = CheckpointId(42), FencingToken(107)


def ack(level: int, subtask: int, digest: str, *consumed: tuple[int, int, str]) -> Acknowledgement:
    return Acknowledgement(
        CHECKPOINT, TOKEN, level, subtask, digest, tuple(ConsumedAttempt(*one) for one in consumed), {"rows": 3}
    )


SOURCE_0, SOURCE_1 = ack(0, 0, "s0"), ack(0, 1, "s1")
STATEFUL = ack(1, 0, "t0", (0, 0, "s0"), (0, 1, "s1"))
WHOLE = (SOURCE_0, SOURCE_1, STATEFUL)


def decline(level: int, subtask: int, reason: str, detail: str = "why") -> Decline:
    return Decline(CHECKPOINT, TOKEN, level, subtask, CheckpointFailureReason[reason], detail, {"line": 7})


def check(*answers: SubtaskAnswer) -> VerifiedAnswers:
    return verify(CHECKPOINT, TOKEN, EXPECTED, answers)


def declined(*answers: SubtaskAnswer) -> SubtaskDeclined:
    with wording.raises(SubtaskDeclined) as caught:
        check(*answers)
    return caught.value


def test_a_complete_epoch_is_verified_in_any_order_of_answers() -> None:
    for answers in permutations(WHOLE):
        verified = check(*answers)
        assert verified.acknowledgements == WHOLE
        assert verified.subtasks() == EXPECTED
        assert verified.results[TaskAcknowledgeResult.SUCCESS] == 3


def test_copies_of_one_attempt_are_duplicates() -> None:
    """As in Flink: the answer is ignored, its state is retained."""
    reordered = replace(STATEFUL, consumed=STATEFUL.consumed[::-1])
    verified = check(*WHOLE, SOURCE_0, SOURCE_0, reordered)
    assert verified.acknowledgements == WHOLE
    assert verified.results[TaskAcknowledgeResult.DUPLICATE] == 3


def test_an_answer_of_a_fenced_job_or_of_another_checkpoint_is_discarded() -> None:
    """I3: a zombie's acknowledgement neither completes the epoch nor breaks it, nor does its decline."""
    late = [replace(one, token=FencingToken(106), attempt_digest="other") for one in WHOLE]
    other = replace(decline(0, 0, "BAD_RECORD"), checkpoint_id=CheckpointId(41))
    verified = check(*late, other, *WHOLE)
    assert verified.acknowledgements == WHOLE
    assert verified.results[TaskAcknowledgeResult.DISCARDED] == 4
    assert declined(*late).details["reason"] == "ACKNOWLEDGEMENT_MISSING"


def test_an_answer_of_a_subtask_that_is_not_expected_is_unknown() -> None:
    verified = check(*WHOLE, ack(7, 0, "x"))
    assert verified.acknowledgements == WHOLE
    assert verified.results[TaskAcknowledgeResult.UNKNOWN] == 1


def test_a_missing_acknowledgement_declines() -> None:
    error = declined(SOURCE_0, STATEFUL)
    assert error.details["reason"] == "ACKNOWLEDGEMENT_MISSING"


def test_two_attempts_of_one_subtask_decline() -> None:
    """I12: only comparing all copies of all acks shows it."""
    for other in (replace(SOURCE_0, attempt_digest="s0'"), replace(SOURCE_0, consumed=(ConsumedAttempt(0, 1, "s1"),))):
        error = declined(*WHOLE, other)
        assert error.details["reason"] == "ATTEMPTS_MIXED"


def test_a_consumed_attempt_that_is_not_the_acknowledged_one_declines() -> None:
    """I7: two downstream subtasks each saw a consistent but different attempt of one upstream."""
    error = declined(SOURCE_0, SOURCE_1, ack(1, 0, "t0", (0, 0, "s0"), (0, 1, "s1'")))
    assert error.details["reason"] == "ATTEMPTS_MIXED"


def test_a_consumed_attempt_of_an_unexpected_subtask_declines() -> None:
    declined(SOURCE_0, SOURCE_1, ack(1, 0, "t0", (0, 5, "s5")))


def test_measurements_may_differ_between_copies_and_the_first_counts() -> None:
    verified = check(*WHOLE, replace(SOURCE_0, payload={"rows": 3, "alignment_ms": 9}))
    assert verified.acknowledgements[0] == SOURCE_0


def test_a_decline_takes_precedence_over_missing_or_mixed_answers() -> None:
    error = declined(SOURCE_0, replace(SOURCE_0, attempt_digest="x"), decline(0, 1, "BAD_RECORD", "day-3.csv line 7"))
    assert error.details["reason"] == "BAD_RECORD"
    assert error.details["payload"] == {"line": 7}


def test_a_decline_for_corrupt_state_is_raised_as_that_error_with_a_hint() -> None:
    """Exit 7 and no retry: another epoch would meet the same bytes."""
    refusal = replace(decline(1, 0, "STATE_CORRUPT", "run r.parquet"), payload={"hint": "milepost verify flights"})
    with wording.raises(StateCorrupt) as caught:
        check(SOURCE_0, SOURCE_1, refusal)
    assert (caught.value.exit_code, caught.value.hint) == (7, "milepost verify flights")
    assert caught.value.details["reason"] == "STATE_CORRUPT"


def test_the_cause_takes_precedence_over_a_forwarded_cancel_marker() -> None:
    echo = decline(0, 0, "CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER")
    cause = decline(1, 0, "SQL_ERROR")
    for answers in permutations((echo, cause, decline(2, 0, "BAD_RECORD"))):
        assert declined(*answers).details["reason"] == "SQL_ERROR"


@pytest.mark.parametrize("answer", [SOURCE_0, STATEFUL, decline(1, 0, "CHANNEL_INCOMPLETE", "3 of 4 buffers")])
def test_an_answer_is_read_back_as_it_was_written(answer: SubtaskAnswer) -> None:
    """I12: JSON canonical: equal answers have equal text."""
    text = encode_answer(answer)
    assert decode_answer(text) == answer
    assert encode_answer(decode_answer(text)) == text


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"acknowledge":{}}', '{"decline":[]}', '{"acknowledge":{},"decline":{}}', "[" * 100_000]
)
def test_an_answer_that_is_none_is_corrupt(text: str) -> None:
    with pytest.raises(StateCorrupt):
        decode_answer(text)
