"""The spans of an epoch: its steps, and below the Spark job its subtasks, at the times that were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from milepost.epoch.task_times import TaskTimes
from milepost.jobmaster.reports.checkpoint.details import CheckpointDetails

_FIGURES = ("rows_in", "rows_out", "late_rows", "checkpointed_bytes", "full_bytes", "in_flight_bytes", "watermark",
            "quality")  # fmt: skip

Attributes = Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class SpanTimes:
    """What ran from when to when, by the wall clock of its machine, ms since the epoch; and what ran as part of it."""

    name: str
    started_ms: int
    ended_ms: int
    attributes: Attributes
    parts: tuple[SpanTimes, ...] = ()


def epoch_span(job: str, report: CheckpointDetails) -> SpanTimes | None:
    """Return the span of a whole epoch; None: nobody measured when its steps ran.

    Ids are attributes here: a trace is of one epoch.
    """
    if not report.steps:
        return None
    subtasks = tuple(map(_subtask, report.tasks))
    steps = tuple(
        SpanTimes(one.step, one.started_ms, one.started_ms + one.took_ms, {}, subtasks if one.step == "job" else ())
        for one in report.steps
    )
    known: dict[str, Any] = {name: getattr(report, name) for name in _FIGURES}
    ids: dict[str, Any] = {
        "job": job,
        "checkpoint_id": report.checkpoint_id,
        "epoch": report.epoch,
        "timeline": report.timeline,
    }
    attributes = {f"milepost.{name}": value for name, value in (ids | known).items() if value is not None}
    ended_ms = max(one.ended_ms for one in (*steps, *subtasks))
    return SpanTimes("epoch", min(one.started_ms for one in steps), ended_ms, attributes, steps)


def _subtask(task: TaskTimes) -> SpanTimes:
    """Return the span of one attempt of a subtask. Its parts take turns, so their times are attributes."""
    measured = {one.name: getattr(task, one.name) for one in fields(task)}
    attributes = {f"milepost.{name}": value for name, value in measured.items() if isinstance(value, int)}
    ended_ms = task.started_ms + task.total_ms
    return SpanTimes(f"subtask {task.level}/{task.subtask}", task.started_ms, ended_ms, attributes)
