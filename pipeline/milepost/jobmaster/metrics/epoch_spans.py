"""The spans of an epoch: its steps, below the Spark job its subtasks, and below each the operators, when they ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

from milepost.epoch.timing.task_times import OperatorTimes, TaskTimes
from milepost.jobmaster.reports.checkpoint.details import CheckpointDetails
from milepost.protocol.manifest.transaction.events import CheckpointAborted
from milepost.protocol.records.reasons import CheckpointFailureReason

_FIGURES = ("rows_in", "rows_out", "late_rows", "checkpointed_bytes", "full_bytes", "in_flight_bytes", "watermark",
            "quality")  # fmt: skip

_STEPS = {"trigger": "plan", "data plane": "job", "validate": "commit", "complete": "commit"}
"""What a step is called while it runs, where that is not what it is called of a complete epoch."""

Attributes = Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class SpanTimes:
    """What ran from when to when, by the wall clock of its machine, ms since the epoch; and what ran as part of it.

    Attributes:
        error: why it did not end well, for people, without a value of a row; "": it did.
    """

    name: str
    started_ms: int
    ended_ms: int
    attributes: Attributes
    parts: tuple[SpanTimes, ...] = ()
    error: str = ""


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


def aborted_span(
    job: str,
    event: CheckpointAborted,
    error_type: str,
    steps: Sequence[tuple[str, int]],
    tasks: Sequence[TaskTimes],
) -> SpanTimes:
    """Return the span of an epoch that was given up: as far as it had come, and why it came no further.

    Args:
        error_type: name of the error's class, else of the reason.
        steps: that this process began, in order, and when; the last is the one that failed. tasks: what is measured of
            the newest try, also of a subtask that declined.
    """
    pending, why = event.pending, _in_words(event)
    subtasks = tuple(map(_subtask, tasks))
    ran = tuple(
        SpanTimes(_STEPS.get(name, name), at_ms, max(at_ms, ended_ms), {}, subtasks if name == "data plane" else ())
        for (name, at_ms), (_, ended_ms) in pairwise((*steps, ("", event.at_ms)))
    )
    if ran:
        failed = replace(ran[-1], error=why, attributes={"error.type": error_type})
        ran = (*ran[:-1], failed)
    parts = ran if any(one.parts for one in ran) else (*ran, *subtasks)
    known: dict[str, Any] = {
        "milepost.job": job,
        "milepost.checkpoint_id": int(pending.checkpoint_id),
        "milepost.epoch": int(pending.epoch),
        "milepost.timeline": event.timeline,
        "milepost.reason": event.reason.value,
        "milepost.counted": event.counted,
        "milepost.tolerated": event.tolerated,
        "error.type": error_type,
    }
    started_ms = min(pending.trigger_time_ms, *(one.started_ms for one in parts)) if parts else pending.trigger_time_ms
    ended_ms = max(event.at_ms, *(one.ended_ms for one in parts)) if parts else event.at_ms
    return SpanTimes("epoch", started_ms, max(started_ms, ended_ms), known, parts, why)


def _in_words(event: CheckpointAborted) -> str:
    """Return why an epoch was given up. An error's own words may quote a record; what a gate says counts rows."""
    reason = event.reason
    of_gate = f": {event.detail}" if reason is CheckpointFailureReason.QUALITY_GATE_FAILED else ""
    return f"{reason.value}: {reason.meaning}{of_gate}"


def _subtask(task: TaskTimes) -> SpanTimes:
    """Return the span of one attempt of a subtask. Its parts take turns, so their times are attributes."""
    operators = tuple(span for uid, times in task.operators.items() for span in _operator(uid, task, times))
    ended_ms = task.started_ms + task.total_ms
    return SpanTimes(f"subtask {task.level}/{task.subtask}", task.started_ms, ended_ms, _measured(task), operators)


def _operator(uid: str, task: TaskTimes, times: OperatorTimes) -> list[SpanTimes]:
    """Return the span of an operator in a subtask: from its first part to its last, between which others' may lie.

    Returns: []: nobody measured when that was.
    """
    if times.from_ms is None or times.to_ms is None:
        return []
    started_ms, ended_ms = task.started_ms + times.from_ms, task.started_ms + times.to_ms
    return [SpanTimes(f"operator {uid}", started_ms, ended_ms, {"milepost.operator": uid, **_measured(times)})]


def _measured(times: TaskTimes | OperatorTimes) -> Attributes:
    found = {one.name: getattr(times, one.name) for one in fields(times)}
    return {f"milepost.{name}": value for name, value in found.items() if isinstance(value, int)}
