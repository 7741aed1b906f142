"""The `checkpointing` key: retention, time limits and restarts."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from milepost.language import Duration, PositiveDuration, Size, SpecModel

MAX_KEY_GROUPS = 32_768


_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


class Retained(SpecModel):
    """Completed checkpoints to retain. A checkpoint stays as long as any of the three rules retains it.

    Attributes:
        last: number of newest checkpoints to retain.
        hourly: number of hours for which the newest checkpoint of the hour is retained, by trigger time in UTC. Hours
            without a checkpoint do not count.
        daily: the same for days.
    """

    last: Annotated[int, Field(ge=1, le=10_000)] = 10
    hourly: Annotated[int, Field(ge=0, le=10_000)] = 0
    daily: Annotated[int, Field(ge=0, le=10_000)] = 0

    @property
    def reach_ms(self) -> int:
        """How far back retained checkpoints may reach: at least a week, because `last` does not bound their age."""
        return max(self.hourly * _HOUR_MS, self.daily * _DAY_MS, 7 * _DAY_MS)


def _number(value: object) -> object:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _retained(value: object) -> object:
    return {"last": value} if isinstance(value, int) and not isinstance(value, bool) else value


class NoneRestart(SpecModel):
    """Do not restart: `milepost run` exits with the failure."""

    strategy: Literal["none"] = "none"


class FixedDelayRestart(SpecModel):
    """Restart a fixed number of times, with a constant delay.

    Attributes:
        attempts: maximum restarts of one run. A completed epoch does not reset the count.
        delay: delay before each restart.
    """

    strategy: Literal["fixed_delay"]
    attempts: Annotated[int, Field(ge=1)] = 1
    delay: Duration = timedelta(seconds=1)


class ExponentialDelayRestart(SpecModel):
    """Restart with exponentially growing delays.

    Attributes:
        initial_backoff: the first delay.
        max_backoff: the longest delay.
        backoff_multiplier: factor from one delay to the next.
        jitter: fraction by which a delay varies at random.
        reset_backoff_threshold: time without a failure after which delay and attempts are reset.
        attempts: maximum restarts since the last reset. null: no limit.
    """

    strategy: Literal["exponential_delay"]
    initial_backoff: PositiveDuration = timedelta(seconds=1)
    max_backoff: PositiveDuration = timedelta(minutes=1)
    backoff_multiplier: Annotated[float, BeforeValidator(_number), Field(gt=1)] = 1.5
    jitter: Annotated[float, BeforeValidator(_number), Field(ge=0, le=1)] = 0.1
    reset_backoff_threshold: PositiveDuration = timedelta(hours=1)
    attempts: Annotated[int, Field(ge=1)] | None = None


class FailureRateRestart(SpecModel):
    """Restart until the failure rate is too high.

    Attributes:
        max_failures_per_interval: more failures than this within `interval` end the run.
        interval: the period over which failures are counted.
        delay: delay before each restart.
    """

    strategy: Literal["failure_rate"]
    max_failures_per_interval: Annotated[int, Field(ge=1)] = 1
    interval: PositiveDuration = timedelta(minutes=1)
    delay: Duration = timedelta(seconds=1)


Restart = Annotated[
    NoneRestart | FixedDelayRestart | ExponentialDelayRestart | FailureRateRestart, Field(discriminator="strategy")
]


class CheckpointingSpec(SpecModel):
    """Retention of completed checkpoints, time limits of an epoch, and what to do after a failure.

    Attributes:
        retained: completed checkpoints to retain. A number N is short for `{last: N}`.
        timeout: time limit of one checkpoint, from its trigger. Also the lease of its session.
        tolerable_failures: consecutive failed epochs that are tolerated before the job is FAILED.
        min_pause: minimum time between the end of one checkpoint and the next trigger.
        max_parallelism: number of key groups, fixed for the life of the job.
        restart: what `milepost run` does after a failed epoch. Under Airflow the next run is the retry.
        aligned_timeout: how long a subtask aligns and processes, from its start. It then leaves the rest of its input
            in flight, as part of the checkpoint. Must be below `timeout`. null: it processes all of its input.
        epoch_budget: time limit of an epoch from the start of its run to its commit point. To meet it, subtasks leave
            rows in flight, and the plan is scaled by the measured rate. Must be below `timeout`. null: no limit.
        max_in_flight: bytes in flight above which no new input is planned. null: no limit. Needs `aligned_timeout` or
            `epoch_budget`.
    """

    retained: Annotated[Retained, BeforeValidator(_retained)] = Retained()
    timeout: PositiveDuration = timedelta(minutes=10)
    tolerable_failures: Annotated[int, Field(ge=0)] = 0
    min_pause: Duration = timedelta(0)
    max_parallelism: Annotated[int, Field(ge=1, le=MAX_KEY_GROUPS)] = 128
    restart: Restart = NoneRestart()
    aligned_timeout: PositiveDuration | None = None
    epoch_budget: PositiveDuration | None = None
    max_in_flight: Size | None = None

    @property
    def cuts_epochs(self) -> bool:
        """Whether an epoch may end with rows in flight."""
        return self.aligned_timeout is not None or self.epoch_budget is not None
