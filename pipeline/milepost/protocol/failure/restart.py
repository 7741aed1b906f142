"""Restart strategies: decide whether and when a failed epoch runs again.

The spec defines a strategy, `RestartHistory` holds past failures, and `restart_after` adds one more failure to it. Time
is an argument, in milliseconds of one monotonic clock. So is jitter, which the caller draws.

Source: Flink's restart strategies (fixed delay, exponential delay, failure rate), and its rule that a failure which
another attempt cannot fix never causes a restart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from milepost.errors import (
    CheckpointError,
    CheckpointExpired,
    CommitConflict,
    SparkLost,
    StoreUnavailable,
    SubtaskDeclined,
)
from milepost.protocol.failure.abort_reasons import reason_for
from milepost.protocol.records.reasons import CheckpointFailureReason


@dataclass(frozen=True, slots=True)
class NoRestart:
    """The failure ends the run."""


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """Up to `attempts` restarts, each after the same delay.

    Attributes:
        attempts: restarts per run, regardless of how many of its epochs complete in between; at least 1.
    """

    attempts: int
    delay_ms: int


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """A delay that grows with each restart, up to a limit, and returns to the initial one after a quiet period.

    With `initial_ms` 1000, `multiplier` 2 and `max_ms` 5000, the delays are 1000, 2000, 4000, 5000, 5000, … ms.

    Attributes:
        multiplier: above 1. jitter: fraction of the delay, 0 to 1, by which it may vary.
        reset_threshold_ms: this long without a failure resets the delay and the count.
        attempts: restarts since the last reset; None: any number.
    """

    initial_ms: int
    max_ms: int
    multiplier: float
    jitter: float
    reset_threshold_ms: int
    attempts: int | None


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Restart after each failure, unless more than `max_failures` occur within one interval."""

    max_failures: int
    interval_ms: int
    delay_ms: int


RestartStrategy = NoRestart | FixedDelay | ExponentialDelay | FailureRate


@dataclass(frozen=True, slots=True)
class RestartHistory:
    """Past failures, as far as the strategy counts them.

    Attributes:
        failures_ms: times of the failures, oldest first.
    """

    failures_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RestartAfter:
    """Run again from the last completed checkpoint, after this delay.

    Attributes:
        description: number of the restart and its rule, for people.
    """

    delay_ms: int
    description: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The failure ends the run; `description` is the reason, for people."""

    description: str


RestartDecision = RestartAfter | GiveUp

_CURABLE = (SubtaskDeclined, StoreUnavailable, CommitConflict, CheckpointExpired)
"""Excludes CommitOutcomeUnknown: the next run must first read back what landed."""

_DETERMINISTIC_REASONS = frozenset(
    {
        CheckpointFailureReason.QUALITY_GATE_FAILED,
        CheckpointFailureReason.QUALITY_GATE_ERROR,
        CheckpointFailureReason.SOURCE_OBJECT_CHANGED,
        CheckpointFailureReason.SOURCE_OBJECT_MISSING,
        CheckpointFailureReason.BAD_RECORD,
        CheckpointFailureReason.SQL_ERROR,
        CheckpointFailureReason.OPERATOR_ERROR,
        CheckpointFailureReason.CODE_MISMATCH,
        CheckpointFailureReason.SPEC_REFUSED,
        CheckpointFailureReason.STATE_CORRUPT,
        CheckpointFailureReason.ENVIRONMENT_UNUSABLE,
    }
)
"""These depend on data, spec and code only, so the same epoch fails again."""


def is_curable(error: BaseException) -> bool:
    """Return whether another attempt may succeed without anyone changing anything.

    Bad data or code, a gate's veto, a bad spec, a fenced session or an unusable machine fail again. A store that did
    not answer, a failed Spark job or a missed deadline may not. An error whose details name a `completed` checkpoint
    does not belong to a failed epoch: after the commit point the next run publishes what is left.
    """
    if isinstance(error, SparkLost):
        return True
    return (
        isinstance(error, _CURABLE)
        and "completed" not in error.details
        and reason_for(error) not in _DETERMINISTIC_REASONS
    )


def restart_after(
    strategy: RestartStrategy, history: RestartHistory, error: CheckpointError, now_ms: int, jitter: float
) -> tuple[RestartDecision, RestartHistory]:
    """Decide about one failed epoch and add it to the history.

    Args:
        history: of this run so far; completed epochs do not change it.
        now_ms: by a monotonic clock. jitter: in [-1, 1]: the share of its jitter that an exponential delay applies.
    """
    if isinstance(strategy, NoRestart):
        return GiveUp("the restart strategy is none"), history
    if not is_curable(error):
        return GiveUp(f"{reason_for(error).value} would fail again"), history
    if isinstance(strategy, FixedDelay):
        counted = RestartHistory((*history.failures_ms, now_ms))
        number = len(counted.failures_ms)
        if number > strategy.attempts:
            return GiveUp(f"all {strategy.attempts} restarts are used up"), counted
        return RestartAfter(strategy.delay_ms, f"restart {number} of {strategy.attempts}"), counted
    if isinstance(strategy, FailureRate):
        recent = tuple(time_ms for time_ms in history.failures_ms if now_ms - time_ms < strategy.interval_ms)
        counted = RestartHistory((*recent, now_ms))
        number = len(counted.failures_ms)
        if number > strategy.max_failures:
            return GiveUp(f"{number} failures within {strategy.interval_ms / 1000:g} s"), counted
        return RestartAfter(strategy.delay_ms, f"failure {number} of {strategy.max_failures} in the interval"), counted
    return _exponential(strategy, history, now_ms, jitter)


def _exponential(
    strategy: ExponentialDelay, history: RestartHistory, now_ms: int, jitter: float
) -> tuple[RestartDecision, RestartHistory]:
    is_reset = bool(history.failures_ms) and now_ms - history.failures_ms[-1] >= strategy.reset_threshold_ms
    counted = replace(history, failures_ms=(now_ms,) if is_reset else (*history.failures_ms, now_ms))
    number = len(counted.failures_ms)
    if strategy.attempts is not None and number > strategy.attempts:
        return GiveUp(f"all {strategy.attempts} restarts are used up"), counted
    delay_ms = min(float(strategy.max_ms), strategy.initial_ms * strategy.multiplier ** min(number - 1, 1_000))
    delay_ms = min(float(strategy.max_ms), max(0.0, delay_ms * (1 + strategy.jitter * jitter)))
    limit = f" of {strategy.attempts}" if strategy.attempts is not None else ""
    return RestartAfter(round(delay_ms), f"restart {number}{limit}"), counted
