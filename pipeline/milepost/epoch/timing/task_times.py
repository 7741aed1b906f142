"""Task times record one attempt of one Spark task, and divide the Spark job's time among its phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from milepost.storage import StoreRequests

_PARTS = {
    "read": ("read_ms",),
    "exchange": ("exchange_wait_ms", "emit_ms"),
    "restore": ("restore_ms",),
    "process": ("process_ms",),
    "sync": ("sync_ms",),
    "stage": ("stage_ms",),
    "async": ("async_wait_ms",),
}
"""Phase of the epoch -> times of a task that are it. They follow one another: their sum is at most `total_ms`."""

JOB_PHASES = (*_PARTS, "spark")
"""What a Spark job's time is divided into; `spark` is what no task measured: planning, scheduling, starting."""

COMPLETE, INCOMPLETE = ".json", "-incomplete.json"
"""How the name of an object with task times ends: of an attempt that acknowledges, and of one that may not."""


@dataclass(frozen=True, slots=True)
class OperatorTimes:
    """The part of a task's times that one of its stateful operators took; named as in `TaskTimes`.

    Attributes:
        async_ms: of the upload of its snapshot, all tables.
        from_ms, to_ms: since the task's start: the beginning of its first part and the end of its last. Others' parts
            may lie between. None: of a checkpoint from before that was measured.
        slices: that its key groups were worked on in, one after another, because they and their rows are more than the
            worker's memory; None: all at once.
    """

    restore_ms: int = 0
    process_ms: int = 0
    emit_ms: int = 0
    sync_ms: int = 0
    async_ms: int = 0
    alignment_ms: int = 0
    from_ms: int | None = None
    to_ms: int | None = None
    slices: int | None = None


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """One attempt of one subtask. Milliseconds of a monotonic clock; None: no part of its work.

    Attributes:
        attempt: Spark's attempt number, from 0.
        started_ms: wall clock of its machine, since the epoch. total_ms: from there to its acknowledgement.
        read_ms: a source's objects, until they are rows. exchange_wait_ms: until all rows of all channels are there.
        emit_ms: handing rows on: routing, encoding, and Spark taking them.
        stage_ms: writing the sinks' files. async_ms: longest upload of a snapshot. async_wait_ms: what was left of the
            uploads when the files were written.
        rows, bytes, buffers: what it was given; a source reads objects, so it has no buffers.
        alignment_ms: longest time between the first and the last barrier that one of its operators processed.
        in_flight_bytes: of the buffers that it left unprocessed.
        left_ms: from the end of its processing to its deadline, negative when it was late; None without a deadline.
        requests: to S3.
        operators: by uid; what of the task's times is no stateful operator's is in no part.
    """

    level: int
    subtask: int
    attempt: int
    started_ms: int
    total_ms: int
    read_ms: int | None
    exchange_wait_ms: int | None
    restore_ms: int | None
    process_ms: int | None
    emit_ms: int | None
    sync_ms: int | None
    stage_ms: int | None
    async_ms: int | None
    async_wait_ms: int | None
    rows: int
    bytes: int | None
    buffers: int | None
    alignment_ms: int
    in_flight_bytes: int
    left_ms: int | None
    requests: StoreRequests = field(default_factory=StoreRequests)
    operators: Mapping[str, OperatorTimes] = field(default_factory=dict)

    def spent_ms(self, *names: str) -> int:
        """Return the sum of some of its times; what is no part of its work counts as nothing."""
        return sum(getattr(self, name) or 0 for name in names)


def divided(tasks: Sequence[TaskTimes], job_ms: int | None) -> dict[str, int | None]:
    """Divide a Spark job's time among its phases; they add up to it.

    Levels run one after another, the tasks of a level side by side. So the time from a level's first start to its last
    end is divided as its tasks' own times are. Machines whose clocks differ can make the levels look longer than the
    job: then all are scaled to it.

    Args:
        job_ms: None: nothing ran, or it was not measured.
    Returns: milliseconds per phase of `JOB_PHASES`; None without tasks, when `spark` has it all.
    """
    if job_ms is None:
        return dict.fromkeys(JOB_PHASES)
    if not tasks:
        return dict.fromkeys(_PARTS) | {"spark": job_ms}
    by_level = [
        list(level) for _, level in groupby(sorted(tasks, key=lambda task: task.level), lambda task: task.level)
    ]
    spans = [_span_ms(level) for level in by_level]
    scale = min(1.0, job_ms / max(1, sum(spans)))
    found = dict.fromkeys(_PARTS, 0.0)
    for level, span_ms in zip(by_level, spans, strict=True):
        busy_ms = max(1, sum(task.spent_ms("total_ms") for task in level))
        for phase, names in _PARTS.items():
            found[phase] += scale * span_ms * sum(task.spent_ms(*names) for task in level) / busy_ms
    phases: dict[str, int | None] = {phase: round(spent) for phase, spent in found.items()}
    return phases | {"spark": max(0, job_ms - sum(round(spent) for spent in found.values()))}


def _span_ms(tasks: Sequence[TaskTimes]) -> int:
    """From the first start to the last end."""
    return max(task.started_ms + task.total_ms for task in tasks) - min(task.started_ms for task in tasks)


def attempts_prefix(level: int, subtask: int) -> str:
    """Return how the names of the measurements of every attempt of a subtask begin."""
    return f"{level}-{subtask}-a"
