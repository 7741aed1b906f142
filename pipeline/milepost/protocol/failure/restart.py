"""Restart strategies decide whether and when a failed epoch is run again.

A strategy is what the spec says; `RestartHistory` is what has happened; `restart_after` folds one more failure into it.
Time is an argument, in milliseconds of one monotonic clock, and so is jitter: the edge draws it.

Source: Flink's restart strategies (fixed delay, exponential delay, failure rate), and its rule that a failure which
another attempt cannot cure is never restarted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from milepost.protocol.failure.abort_reasons import reason_for
from milepost.protocol.records.errors import (
    CheckpointError,
    CheckpointExpired,
    CommitConflict,
    SparkLost,
    StoreUnavailable,
    SubtaskDeclined,
)
from milepost.protocol.records.reasons import CheckpointFailureReason


@dataclass(frozen=True, slots=True)
class NoRestart:
    """The failure ends the run."""


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """Up to `attempts` restarts, each after the same delay.

    Attributes:
        attempts: restarts of one run, however many of its epochs complete in between; at least 1.
    """

    attempts: int
    delay_ms: int


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """A delay that grows with each restart, up to a limit; it falls back to the first one after a quiet time.

    Attributes:
        multiplier: above 1. jitter: fraction of the delay, 0 to 1, by which it may differ.
        reset_threshold_ms: no failure for that long starts over.
        attempts: restarts since it started over; None = any number.
    """

    initial_ms: int
    max_ms: int
    multiplier: float
    jitter: float
    reset_threshold_ms: int
    attempts: int | None


@dataclass(frozen=True, slots=True)
class FailureRate:
    """A restart after each failure, as long as not more than so many failures fall into one interval."""

    max_failures: int
    interval_ms: int
    delay_ms: int


RestartStrategy = NoRestart | FixedDelay | ExponentialDelay | FailureRate


@dataclass(frozen=True, slots=True)
class RestartHistory:
    """The failures that a strategy counts.

    Attributes:
        failures_ms: when they were, oldest first, as far as the strategy still counts them.
    """

    failures_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RestartAfter:
    """Run again from the last completed checkpoint, after this delay.

    Attributes:
        words: which restart it is and by which rule, for people.
    """

    delay_ms: int
    words: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The failure ends the run; `words` say why, for people."""

    words: str


RestartDecision = RestartAfter | GiveUp

_CURABLE = (SubtaskDeclined, StoreUnavailable, CommitConflict, CheckpointExpired)
"""Not CommitOutcomeUnknown: what landed must be read first, which the next run does."""

_SAME_AGAIN = frozenset(
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
"""A function of data, spec and code: the same epoch fails in the same way."""


def is_curable(error: BaseException) -> bool:
    """Return whether another attempt may succeed where this one failed, with nobody changing anything.

    A subtask that declined because of its data or code, a gate's veto, a bad spec, a fenced session or an unusable
    machine fail again; a store that did not answer, a broken Spark job or a deadline may not. An error that names the
    checkpoint that `completed` is of no failed epoch: after the commit point the next run publishes what is left.
    """
    if isinstance(error, SparkLost):
        return True
    return isinstance(error, _CURABLE) and "completed" not in error.details and reason_for(error) not in _SAME_AGAIN


def restart_after(
    strategy: RestartStrategy, history: RestartHistory, error: CheckpointError, now_ms: int, jitter: float
) -> tuple[RestartDecision, RestartHistory]:
    """Decide about one failed epoch, and count it.

    Args:
        history: of the run so far; a completed epoch leaves it as it is.
        now_ms: of a monotonic clock. jitter: in [-1, 1]: how much of its jitter an exponential delay takes.
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
        recent = tuple(at for at in history.failures_ms if now_ms - at < strategy.interval_ms)
        counted = RestartHistory((*recent, now_ms))
        number = len(counted.failures_ms)
        if number > strategy.max_failures:
            return GiveUp(f"{number} failures within {strategy.interval_ms / 1000:g} s"), counted
        return RestartAfter(strategy.delay_ms, f"failure {number} of {strategy.max_failures} in the interval"), counted
    return _exponential(strategy, history, now_ms, jitter)


def _exponential(
    strategy: ExponentialDelay, history: RestartHistory, now_ms: int, jitter: float
) -> tuple[RestartDecision, RestartHistory]:
    quiet = bool(history.failures_ms) and now_ms - history.failures_ms[-1] >= strategy.reset_threshold_ms
    counted = replace(history, failures_ms=(now_ms,) if quiet else (*history.failures_ms, now_ms))
    number = len(counted.failures_ms)
    if strategy.attempts is not None and number > strategy.attempts:
        return GiveUp(f"all {strategy.attempts} restarts are used up"), counted
    delay_ms = min(float(strategy.max_ms), strategy.initial_ms * strategy.multiplier ** min(number - 1, 1_000))
    delay_ms = min(float(strategy.max_ms), max(0.0, delay_ms * (1 + strategy.jitter * jitter)))
    of = f" of {strategy.attempts}" if strategy.attempts is not None else ""
    return RestartAfter(round(delay_ms), f"restart {number}{of}"), counted
