"""The pace of a job is how many epochs it makes in a day: by its schedule, else by what it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.values.times.cron import runs_per_day
from milepost.protocol.records.checkpoints import CompletedCheckpoint

MEASURED_EPOCHS = 10
"""An estimate is of so many epochs, the newest."""

LEAST_PACE_MS = 3_600_000
"""Epochs that follow one another within less than this are a person's at work: they say nothing of a day."""

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Pace:
    """Epochs in a day. Attributes: per_day: None: not known. by_schedule: the cron expression says so."""

    per_day: float | None
    by_schedule: bool


def pace_of(context: JobContext, newest: Sequence[CompletedCheckpoint]) -> Pace:
    """Return a job's pace. Args: newest: checkpoints of the live lineage, oldest first, at least one."""
    schedule = context.spec.schedule
    planned = None if schedule is None or schedule.cron is None else runs_per_day(schedule.cron)
    if planned is not None:
        return Pace(planned, by_schedule=True)
    spent_ms = newest[-1].trigger_time_ms - newest[0].trigger_time_ms
    return Pace((len(newest) - 1) * _DAY_MS / spent_ms if spent_ms >= LEAST_PACE_MS else None, by_schedule=False)
