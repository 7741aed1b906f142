"""The checkpointing of a job spec: what is kept, how long an epoch may take, and what a failed one means."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from milepost.spec.values.fields import Duration, PositiveDuration, Size, SpecModel

MAX_KEY_GROUPS = 32_768


_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


class Retained(SpecModel):
    """Which completed checkpoints stay; what any of the three keeps stays.

    Attributes:
        last: the newest so many.
        hourly: the newest of each of the newest so many hours that have one, in UTC, by trigger time.
        daily: the newest of each of the newest so many days that have one, in UTC, by trigger time.
    """

    last: Annotated[int, Field(ge=1, le=10_000)] = 10
    hourly: Annotated[int, Field(ge=0, le=10_000)] = 0
    daily: Annotated[int, Field(ge=0, le=10_000)] = 0

    @property
    def reach_ms(self) -> int:
        """How far back they may lie, at least a week: how many of the newest there are says nothing of time."""
        return max(self.hourly * _HOUR_MS, self.daily * _DAY_MS, 7 * _DAY_MS)


def _number(value: object) -> object:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _retained(value: object) -> object:
    return {"last": value} if isinstance(value, int) and not isinstance(value, bool) else value


class NoneRestart(SpecModel):
    """`milepost run` ends with the failure."""

    strategy: Literal["none"] = "none"


class FixedDelayRestart(SpecModel):
    """So many restarts, after a delay that stays the same.

    Attributes:
        attempts: restarts of one run; a completed epoch gives none back.
        delay: before each.
    """

    strategy: Literal["fixed_delay"]
    attempts: Annotated[int, Field(ge=1)] = 1
    delay: Duration = timedelta(seconds=1)


class ExponentialDelayRestart(SpecModel):
    """Restarts after delays that grow.

    Attributes:
        initial_backoff: the first delay.
        max_backoff: the longest delay.
        backoff_multiplier: each delay is so many times the one before.
        jitter: fraction by which a delay may differ.
        reset_backoff_threshold: no failure for so long starts over.
        attempts: restarts since it started over; null: any number.
    """

    strategy: Literal["exponential_delay"]
    initial_backoff: PositiveDuration = timedelta(seconds=1)
    max_backoff: PositiveDuration = timedelta(minutes=1)
    backoff_multiplier: Annotated[float, BeforeValidator(_number), Field(gt=1)] = 1.5
    jitter: Annotated[float, BeforeValidator(_number), Field(ge=0, le=1)] = 0.1
    reset_backoff_threshold: PositiveDuration = timedelta(hours=1)
    attempts: Annotated[int, Field(ge=1)] | None = None


class FailureRateRestart(SpecModel):
    """Restarts until failures come too fast.

    Attributes:
        max_failures_per_interval: more failures than that within `interval` end the run.
        interval: the time in which failures are counted.
        delay: before each restart.
    """

    strategy: Literal["failure_rate"]
    max_failures_per_interval: Annotated[int, Field(ge=1)] = 1
    interval: PositiveDuration = timedelta(minutes=1)
    delay: Duration = timedelta(seconds=1)


Restart = Annotated[
    NoneRestart | FixedDelayRestart | ExponentialDelayRestart | FailureRateRestart, Field(discriminator="strategy")
]


class CheckpointingSpec(SpecModel):
    """When an epoch counts as failed, what is kept of completed ones, and how much one takes on.

    Attributes:
        retained: which completed checkpoints stay; a number is the same as `{last: number}`.
        timeout: of one checkpoint, from its trigger; the lease of its session.
        tolerable_failures: failed epochs in a row before the job is FAILED.
        min_pause: least time between the end of one checkpoint and the next trigger.
        max_parallelism: number of key groups, fixed for the job's life.
        restart: what `milepost run` does after a failed epoch; under Airflow the next run is the retry.
        aligned_timeout: how long a subtask aligns and processes, from its start, before it leaves the rest of its
            input in flight, as part of the checkpoint; below `timeout`; null: it processes all of it.
        epoch_budget: how long an epoch may take from the start of its run to its commit point; its subtasks leave rows
            in flight, and its plan is scaled by the measured rate, so that it fits; below `timeout`; null: as long as
            it takes.
        max_in_flight: bytes in flight above which no new input is planned; null: any number. Needs one of the two.
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
