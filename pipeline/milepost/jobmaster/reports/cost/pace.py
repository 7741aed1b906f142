"""Estimate how many epochs a job runs per day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.jobmaster.job.context import JobContext
from milepost.language.times import runs_per_day
from milepost.protocol.records import CompletedCheckpoint

MEASURED_EPOCHS = 10
"""Number of epochs, the newest, that an estimate is based on."""

MIN_SPAN_MS = 3_600_000
"""Epochs within a shorter span were started by a person, so they do not show the pace of a day."""

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Pace:
    """Epochs per day. per_day: None if unknown. by_schedule: whether derived from the cron expression."""

    per_day: float | None
    by_schedule: bool


def pace_of(context: JobContext, newest: Sequence[CompletedCheckpoint]) -> Pace:
    """Return a job's pace: by its schedule, else by its newest epochs.

    Example without a schedule: 10 epochs, triggered from 00:00 to 03:00, are 9 intervals in 3 hours, so 72 per day.

    Args:
        newest: checkpoints of the live lineage, oldest first, at least one.
    """
    schedule = context.spec.schedule
    planned = None if schedule is None or schedule.cron is None else runs_per_day(schedule.cron)
    if planned is not None:
        return Pace(planned, by_schedule=True)
    spent_ms = newest[-1].trigger_time_ms - newest[0].trigger_time_ms
    return Pace((len(newest) - 1) * _DAY_MS / spent_ms if spent_ms >= MIN_SPAN_MS else None, by_schedule=False)
