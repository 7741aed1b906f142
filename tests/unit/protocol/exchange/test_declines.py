"""Rollback requests: deduplicated by subtask, with one cause. Source: Ray's JobWorker.requestRollback."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import ProtocolViolation, SubtaskDeclined
from milepost.protocol.exchange.acknowledgements import verify
from milepost.protocol.exchange.declines import Decline, Declines, RecreatedSubtask, find_recreated_subtasks
from milepost.protocol.records.checkpoints import SubtaskKey
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit import wording

ECHO = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
BAD = CheckpointFailureReason.BAD_RECORD
FAILED = CheckpointFailureReason.OPERATOR_ERROR


def decline(level: int, subtask: int, reason: CheckpointFailureReason = BAD, detail: str = "line 7") -> Decline:
    return Decline(CheckpointId(4), FencingToken(9), level, subtask, reason, detail)


def collected(*declines: Decline) -> Declines:
    requests = Declines()
    for one in declines:
        requests.request(one)
    return requests


def test_repeated_requests_of_a_subtask_count_once() -> None:
    requests = Declines()
    assert not requests.has_requests
    assert requests.request(decline(0, 1)) and not requests.request(decline(0, 1))
    assert not requests.request(decline(0, 1, FAILED)), "another attempt, another reason: the same subtask asks"
    assert requests.has_requests
    (only,) = requests.requests()
    assert (only.subtask, only.copies) == (SubtaskKey(0, 1), 3)


def test_the_cause_is_upstream_of_its_consequences() -> None:
    requests = collected(decline(2, 0, ECHO), decline(0, 3, ECHO), decline(1, 1, FAILED), decline(1, 0, BAD))
    assert requests.cause() == decline(1, 0, BAD)
    assert requests.detail() == "line 7 (also subtask 1/1: OPERATOR_ERROR)"


def test_only_so_many_further_reasons_are_shown() -> None:
    requests = collected(*(decline(0, subtask) for subtask in range(6)))
    assert requests.detail().endswith("subtask 0/3: BAD_RECORD, 2 more)")


def test_without_a_request_there_is_no_cause() -> None:
    with wording.raises(ProtocolViolation):
        Declines().cause()


@given(
    asked=st.lists(st.builds(decline, st.integers(0, 2), st.integers(0, 2), st.sampled_from([BAD, FAILED, ECHO]))),
    seed=st.randoms(use_true_random=False),
)
def test_the_order_in_which_requests_arrive_changes_nothing(asked: list[Decline], seed: object) -> None:
    shuffled = list(asked)
    seed.shuffle(shuffled)  # type: ignore[attr-defined]
    assert collected(*asked).requests() == collected(*shuffled).requests()
    assert sum(request.copies for request in collected(*asked).requests()) == len(asked)


def test_a_recreated_subtask_is_rolled_back_to_the_base_of_its_epoch() -> None:
    """A lost attempt leaves no measurement, its successor's number counts it; speculative copies are one more."""
    one, two, three = SubtaskKey(0, 1), SubtaskKey(1, 0), SubtaskKey(1, 1)
    measured = [(two, 1), (three, 0), (one, 0), (one, 2), (one, 1)]
    base = CheckpointId(3)
    assert find_recreated_subtasks(measured, base) == (RecreatedSubtask(one, 3, base), RecreatedSubtask(two, 2, base))
    assert find_recreated_subtasks([], base) == ()


def test_the_abort_notifies_every_request_with_the_reason_of_the_cause() -> None:
    """What `verify` raises is what the manifest records: reason and detail."""
    answers = [decline(1, 0, ECHO, "0/1 declined"), decline(0, 1), decline(0, 1), decline(0, 0, FAILED, "it raised")]
    with pytest.raises(SubtaskDeclined) as raised:
        verify(CheckpointId(4), FencingToken(9), [SubtaskKey(0, 0)], answers)
    details = raised.value.details
    assert (details["reason"], details["detail"]) == ("OPERATOR_ERROR", "it raised (also subtask 0/1: BAD_RECORD)")
    assert [(one["level"], one["subtask"], one["copies"]) for one in details["rollback_requests"]] == [  # type: ignore[attr-defined]
        (0, 0, 1),
        (0, 1, 2),
        (1, 0, 1),
    ]
