"""Decide whether `milepost run` runs a failed epoch again, by the spec's restart strategy.

The rules are pure (`protocol/failure/restart.py`). This module adds the clock and the random jitter. Airflow does not
use it: there the next DAG run is the retry, and retry loops must not multiply (DESIGN 4.2).
"""

from __future__ import annotations

import random
import time

from milepost.errors import CheckpointError
from milepost.jobspec.job import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart, NoneRestart, Restart
from milepost.language.times import in_ms
from milepost.protocol.failure import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    GiveUp,
    NoRestart,
    RestartAfter,
    RestartDecision,
    RestartHistory,
    RestartStrategy,
    restart_after,
)


class Recovery:
    """The restarts of one `milepost run`.

    Attributes:
        decision: on the newest failure; None before the first one.
    """

    def __init__(self, restart: Restart) -> None:
        self._strategy = restart_strategy(restart)
        self._history = RestartHistory()
        self._error: BaseException | None = None
        self.decision: RestartDecision | None = None

    def failed(self, error: BaseException) -> bool:
        """Record a failed epoch. Returns whether it will run again, which means that the failure is tolerated.

        The same error object counts once, however often it is passed.
        """
        if error is self._error:
            return isinstance(self.decision, RestartAfter)
        self._error = error
        if not isinstance(error, CheckpointError):
            self.decision = GiveUp("the run was stopped")
            return False
        now_ms = round(time.monotonic() * 1000)
        jitter = random.uniform(-1.0, 1.0)
        self.decision, self._history = restart_after(self._strategy, self._history, error, now_ms, jitter)
        return isinstance(self.decision, RestartAfter)


def restart_strategy(restart: Restart) -> RestartStrategy:
    """Return the protocol's form of the spec's restart strategy."""
    if isinstance(restart, NoneRestart):
        return NoRestart()
    if isinstance(restart, FixedDelayRestart):
        return FixedDelay(restart.attempts, in_ms(restart.delay))
    if isinstance(restart, FailureRateRestart):
        interval_ms = in_ms(restart.interval)
        return FailureRate(restart.max_failures_per_interval, interval_ms, in_ms(restart.delay))
    assert isinstance(restart, ExponentialDelayRestart)
    return ExponentialDelay(
        initial_ms=in_ms(restart.initial_backoff),
        max_ms=in_ms(restart.max_backoff),
        multiplier=restart.backoff_multiplier,
        jitter=restart.jitter,
        reset_threshold_ms=in_ms(restart.reset_backoff_threshold),
        attempts=restart.attempts,
    )
