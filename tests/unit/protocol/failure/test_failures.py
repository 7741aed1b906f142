"""Counting of failures. Source: Flink CheckpointFailureManagerTest, with the names of its test."""

from __future__ import annotations

from milepost.protocol.failure.failures import MAX_COUNTED_IDS, MAX_DETAIL_CHARACTERS, record_failure, record_success
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.manifest_state import Failures
from milepost.protocol.records.reasons import (
    COUNTED_REASONS,
    FLINK_COUNTED_REASONS,
    MEANINGS,
    CheckpointFailureReason,
    parse_reason,
)

DECLINED = CheckpointFailureReason.CHECKPOINT_DECLINED
COUNTED_OF_OURS = """
QUALITY_GATE_FAILED QUALITY_GATE_ERROR SOURCE_OBJECT_CHANGED SOURCE_OBJECT_MISSING BAD_RECORD SQL_ERROR OPERATOR_ERROR
SINK_PREPARE_FAILED CHANNEL_INCOMPLETE CHANNEL_DIGEST_MISMATCH ATTEMPTS_MIXED ACKNOWLEDGEMENT_MISSING STATE_CORRUPT
"""
STOPPED = "LEADER_LOST LEADER_TAKEN_OVER ABORTED_BY_USER INTERRUPTED ENVIRONMENT_UNUSABLE CODE_MISMATCH SPEC_REFUSED"


def fail(failures: Failures, checkpoint_id: int, reason: CheckpointFailureReason = DECLINED) -> Failures:
    return record_failure(failures, CheckpointId(checkpoint_id), reason, "it failed", 0).failures


def test_total_count_value() -> None:
    """testTotalCountValue: of Flink's 24 reasons exactly five count."""
    own = {*COUNTED_OF_OURS.split(), *STOPPED.split()}
    of_flink = [reason for reason in CheckpointFailureReason if reason.value not in own]
    assert len(of_flink) == 24
    failures = Failures()
    for checkpoint_id, reason in enumerate(of_flink, start=1):
        failures = fail(failures, checkpoint_id, reason)
    assert failures.consecutive == len(FLINK_COUNTED_REASONS) == 5


def test_ours_count_when_the_epoch_failed_and_not_when_it_was_stopped() -> None:
    assert {reason.value for reason in COUNTED_REASONS - FLINK_COUNTED_REASONS} == set(COUNTED_OF_OURS.split())
    assert not any(CheckpointFailureReason[name].counted for name in STOPPED.split())


def test_ignores_past_checkpoints() -> None:
    """testIgnoresPastCheckpoints: a failure of an id up to the last success is ignored."""
    failures = record_success(fail(Failures(), 1), CheckpointId(2))
    assert fail(fail(failures, 1), 2).consecutive == 0
    assert fail(failures, 3).consecutive == 1


def test_break_continuous_failure() -> None:
    """testBreakContinuousFailure: a success resets; an older success does not."""
    failures = fail(fail(Failures(), 1), 2)
    assert failures.consecutive == 2
    reset = record_success(failures, CheckpointId(3))
    assert reset == Failures(last_success=CheckpointId(3))
    again = fail(reset, 4)
    assert record_success(again, CheckpointId(3)) == again


def test_ignore_one_checkpoint_repeatedly_count_multi_times() -> None:
    """testIgnoreOneCheckpointRepeatedlyCountMultiTimes: each id counts once, in whatever order ids fail."""
    failures = Failures()
    for checkpoint_id in (2, 2, 1, 2, 1):
        failures = fail(failures, checkpoint_id)
    assert (failures.consecutive, failures.counted) == (2, (1, 2))


def test_a_failure_is_tolerated_up_to_the_limit() -> None:
    failures, tolerated = Failures(), []
    for checkpoint_id in (1, 2, 3):
        verdict = record_failure(failures, CheckpointId(checkpoint_id), DECLINED, "it failed", 2)
        failures = verdict.failures
        tolerated.append(verdict.tolerated)
        assert verdict.counted
    assert tolerated == [True, True, False]


def test_an_uncounted_failure_is_shown_and_tolerated() -> None:
    verdict = record_failure(Failures(), CheckpointId(7), CheckpointFailureReason.LEADER_LOST, "kill -9", 0)
    assert (verdict.counted, verdict.tolerated, verdict.failures.consecutive) == (False, True, 0)
    shown = verdict.failures
    assert (shown.last_reason, shown.last_detail, shown.last_checkpoint) == ("LEADER_LOST", "kill -9", 7)


def test_the_counters_stay_small() -> None:
    failures = Failures()
    for checkpoint_id in range(1, MAX_COUNTED_IDS + 10):
        failures = fail(failures, checkpoint_id)
    assert (len(failures.counted), failures.counted[-1]) == (MAX_COUNTED_IDS, MAX_COUNTED_IDS + 9)


def test_a_detail_can_always_be_stored() -> None:
    """An abort must never fail because of its detail, whatever its length or the file names in it."""
    for detail in ("x" * 100_000, "bad file \udcff.csv"):
        failures = record_failure(Failures(), CheckpointId(1), DECLINED, detail, 0).failures
        assert failures.last_detail is not None
        assert len(failures.last_detail) <= MAX_DETAIL_CHARACTERS
        assert failures.last_detail.encode()


def test_every_reason_says_what_it_means_and_is_stored_by_its_name() -> None:
    assert set(MEANINGS) == set(CheckpointFailureReason)
    for reason in CheckpointFailureReason:
        assert reason.meaning
        assert reason.value == reason.name
        assert parse_reason(reason.value) is reason


def test_an_unknown_reason_never_keeps_a_checkpoint_from_being_aborted() -> None:
    assert parse_reason("SOMETHING_ELSE") is DECLINED
