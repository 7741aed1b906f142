"""Restart strategies: when a failed epoch runs again. Source: Flink's restart strategies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import (
    CheckpointError,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    Fenced,
    InvalidRequest,
    QualityGateFailed,
    SparkLost,
    StateCorrupt,
    StoreUnavailable,
    SubtaskDeclined,
)
from milepost.protocol.failure.restart import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    GiveUp,
    NoRestart,
    RestartAfter,
    RestartHistory,
    RestartStrategy,
    is_curable,
    restart_after,
)
from milepost.protocol.records.reasons import CheckpointFailureReason

DOWN = StoreUnavailable("the store did not answer")


def delays(strategy: RestartStrategy, at_ms: list[int], jitter: float = 0.0) -> list[int | None]:
    """The delay after each failure; None: no further restart."""
    found: list[int | None] = []
    history = RestartHistory()
    for now_ms in at_ms:
        decision, history = restart_after(strategy, history, DOWN, now_ms, jitter)
        found.append(decision.delay_ms if isinstance(decision, RestartAfter) else None)
    return found


def test_none_never_restarts() -> None:
    assert delays(NoRestart(), [0, 1]) == [None, None]


def test_a_fixed_delay_restarts_so_many_times() -> None:
    strategy = FixedDelay(attempts=2, delay_ms=500)
    assert delays(strategy, [0, 10_000, 20_000]) == [500, 500, None]


def test_an_exponential_delay_grows_to_its_limit_and_starts_over_after_a_quiet_time() -> None:
    strategy = ExponentialDelay(1_000, 5_000, 2.0, 0.0, 60_000, None)
    assert delays(strategy, [0, 1, 2, 3, 4]) == [1_000, 2_000, 4_000, 5_000, 5_000]
    assert delays(strategy, [0, 1, 60_001, 60_002]) == [1_000, 2_000, 1_000, 2_000]


def test_an_exponential_delay_gives_up_after_its_attempts() -> None:
    assert delays(ExponentialDelay(10, 100, 1.5, 0.0, 60_000, 2), [0, 1, 2]) == [10, 15, None]


@pytest.mark.deep
@given(jitter=st.floats(-1, 1), factor=st.floats(0, 1), failures=st.integers(1, 2_000))
def test_jitter_stays_within_its_part_of_the_delay(jitter: float, factor: float, failures: int) -> None:
    plain = delays(ExponentialDelay(1_000, 60_000, 1.5, 0.0, 10**9, None), list(range(failures)))[-1]
    moved = delays(ExponentialDelay(1_000, 60_000, 1.5, factor, 10**9, None), list(range(failures)), jitter)[-1]
    assert plain is not None and moved is not None
    assert 0 <= moved <= 60_000 and abs(moved - plain) <= plain * factor + 1


def test_a_failure_rate_counts_within_its_interval_only() -> None:
    strategy = FailureRate(max_failures=2, interval_ms=1_000, delay_ms=7)
    assert delays(strategy, [0, 500, 999]) == [7, 7, None]
    assert delays(strategy, [0, 500, 1_000, 1_499]) == [7, 7, 7, None]


@pytest.mark.parametrize(
    ("error", "curable"),
    [
        (DOWN, True),
        (SubtaskDeclined("a task broke", reason="TASK_FAILURE"), True),
        (SubtaskDeclined("attempts were mixed", reason="ATTEMPTS_MIXED"), True),
        (SubtaskDeclined("line 7", reason="BAD_RECORD"), False),
        (SubtaskDeclined("it raised", reason="OPERATOR_ERROR"), False),
        (QualityGateFailed("vetoed"), False),
        (InvalidRequest("no such column"), False),
        (Fenced("a newer run owns it"), False),
        (StateCorrupt("a run is missing"), False),
        (EnvironmentUnusable("no Java"), False),
        (SparkLost("the server was restarted"), True),
        (CommitOutcomeUnknown("the reply was lost"), False),
        (StoreUnavailable("a sink did not answer", completed=4), False),
    ],
)
def test_only_failures_that_another_attempt_may_fix_are_restarted(error: CheckpointError, curable: bool) -> None:
    """Retry loops must not multiply: a failure that would repeat is not retried."""
    assert is_curable(error) is curable
    decision, _ = restart_after(FixedDelay(3, 0), RestartHistory(), error, 0, 0.0)
    assert isinstance(decision, RestartAfter if curable else GiveUp)


def test_every_reason_is_either_curable_or_not_on_purpose() -> None:
    """A decline that no rule knows would be restarted: the data's, the code's and the gate's must be known."""
    not_restarted = {
        reason for reason in CheckpointFailureReason if not is_curable(SubtaskDeclined("x", reason=reason.value))
    }
    of_code = {"CODE_MISMATCH", "SPEC_REFUSED"}
    named = of_code | {"BAD_RECORD", "SQL_ERROR", "OPERATOR_ERROR", "QUALITY_GATE_FAILED", "QUALITY_GATE_ERROR"}
    assert named <= {reason.value for reason in not_restarted}
