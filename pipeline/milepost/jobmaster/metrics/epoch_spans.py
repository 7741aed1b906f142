"""Build the trace spans of an epoch: steps, subtasks of the Spark job, and their operators.

epoch
  plan
  job
    subtask 0/0
      operator clean
    subtask 0/1
  commit
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

from milepost.epoch.timing import OperatorTimes, TaskTimes
from milepost.jobmaster.reports.checkpoint.details import CheckpointDetails
from milepost.protocol.manifest.transaction import CheckpointAborted
from milepost.protocol.records import CheckpointFailureReason

_FIGURES = ("rows_in", "rows_out", "late_rows", "checkpointed_bytes", "full_bytes", "in_flight_bytes", "watermark",
            "quality")  # fmt: skip

_STEPS = {"trigger": "plan", "data plane": "job", "validate": "commit", "complete": "commit"}
"""Names of running steps that differ from their names in the report of a complete epoch."""

Attributes = Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class SpanTimes:
    """A span: start and end by the wall clock of its machine, in ms since 1970, and its child spans.

    Attributes:
        parts: the child spans. error: why it failed, as text without row data; "": it succeeded.
    """

    name: str
    started_ms: int
    ended_ms: int
    attributes: Attributes
    parts: tuple[SpanTimes, ...] = ()
    error: str = ""


def epoch_span(job: str, report: CheckpointDetails) -> SpanTimes | None:
    """Return the span of a complete epoch; None: its steps were not measured.

    Ids are attributes, because each trace is of one epoch.
    """
    if not report.steps:
        return None
    subtasks = tuple(map(_subtask, report.tasks))
    steps = tuple(
        SpanTimes(
            step.step, step.started_ms, step.started_ms + step.took_ms, {}, subtasks if step.step == "job" else ()
        )
        for step in report.steps
    )
    figures: dict[str, Any] = {name: getattr(report, name) for name in _FIGURES}
    ids: dict[str, Any] = {
        "job": job,
        "checkpoint_id": report.checkpoint_id,
        "epoch": report.epoch,
        "timeline": report.timeline,
    }
    attributes = {f"milepost.{name}": value for name, value in (ids | figures).items() if value is not None}
    ended_ms = max(span.ended_ms for span in (*steps, *subtasks))
    return SpanTimes("epoch", min(span.started_ms for span in steps), ended_ms, attributes, steps)


def aborted_span(
    job: str,
    event: CheckpointAborted,
    error_type: str,
    steps: Sequence[tuple[str, int]],
    tasks: Sequence[TaskTimes],
) -> SpanTimes:
    """Return the span of an aborted epoch, with the steps that ran and the error.

    Example: steps `[("trigger", 100), ("data plane", 300)]` and an abort at 900 give the spans plan 100-300 and job
    300-900, and job has the error.

    Args:
        error_type: class name of the error, else the reason.
        steps: name and start in ms of each step that this process started, in order. The last one failed.
        tasks: times of the newest try, including those of a subtask that declined.
    """
    pending, why = event.pending, _reason_text(event)
    subtasks = tuple(map(_subtask, tasks))
    ran = tuple(
        SpanTimes(_STEPS.get(name, name), at_ms, max(at_ms, ended_ms), {}, subtasks if name == "data plane" else ())
        for (name, at_ms), (_, ended_ms) in pairwise((*steps, ("", event.at_ms)))
    )
    if ran:
        failed = replace(ran[-1], error=why, attributes={"error.type": error_type})
        ran = (*ran[:-1], failed)
    parts = ran if any(span.parts for span in ran) else (*ran, *subtasks)
    attributes: dict[str, Any] = {
        "milepost.job": job,
        "milepost.checkpoint_id": int(pending.checkpoint_id),
        "milepost.epoch": int(pending.epoch),
        "milepost.timeline": event.timeline,
        "milepost.reason": event.reason.value,
        "milepost.counted": event.counted,
        "milepost.tolerated": event.tolerated,
        "error.type": error_type,
    }
    started_ms = (
        min(pending.trigger_time_ms, *(span.started_ms for span in parts)) if parts else pending.trigger_time_ms
    )
    ended_ms = max(event.at_ms, *(span.ended_ms for span in parts)) if parts else event.at_ms
    return SpanTimes("epoch", started_ms, max(started_ms, ended_ms), attributes, parts, why)


def _reason_text(event: CheckpointAborted) -> str:
    """Format why an epoch was aborted.

    The error message is left out, because it may quote a record. A quality gate's verdict only counts rows.
    """
    reason = event.reason
    verdict = f": {event.detail}" if reason is CheckpointFailureReason.QUALITY_GATE_FAILED else ""
    return f"{reason.value}: {reason.meaning}{verdict}"


def _subtask(task: TaskTimes) -> SpanTimes:
    """Return the span of one attempt of a subtask. Its phases alternate, so their times are attributes, not spans."""
    operators = tuple(span for uid, times in task.operators.items() for span in _operator(uid, task, times))
    ended_ms = task.started_ms + task.total_ms
    return SpanTimes(f"subtask {task.level}/{task.subtask}", task.started_ms, ended_ms, _measurements(task), operators)


def _operator(uid: str, task: TaskTimes, times: OperatorTimes) -> list[SpanTimes]:
    """Return the span of an operator in a subtask, from its first activity to its last. Spans of operators overlap.

    Returns: []: not measured.
    """
    if times.from_ms is None or times.to_ms is None:
        return []
    started_ms, ended_ms = task.started_ms + times.from_ms, task.started_ms + times.to_ms
    return [SpanTimes(f"operator {uid}", started_ms, ended_ms, {"milepost.operator": uid, **_measurements(times)})]


def _measurements(times: TaskTimes | OperatorTimes) -> Attributes:
    values = {field.name: getattr(times, field.name) for field in fields(times)}
    return {f"milepost.{name}": value for name, value in values.items() if isinstance(value, int)}
