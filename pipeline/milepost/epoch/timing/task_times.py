"""Times of each Spark task attempt, and the division of a job's time into phases."""

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
"""Phase of the epoch -> the task times that it consists of. They are consecutive: their sum is at most `total_ms`."""

JOB_PHASES = (*_PARTS, "spark")
"""Phases of a Spark job's time. `spark` is the part that no task measured: planning, scheduling, starting."""

COMPLETE, INCOMPLETE = ".json", "-incomplete.json"
"""Suffixes of objects with task times: of an attempt that acknowledges, and of one that may not."""


@dataclass(frozen=True, slots=True)
class OperatorTimes:
    """One stateful operator's part of a task's times, named as in `TaskTimes`.

    Attributes:
        async_ms: time to upload its snapshot, all tables.
        from_ms, to_ms: start of its first part and end of its last part, since the task's start. Parts of other
            operators may be in between. None in older checkpoints, which did not measure it.
        slices: number of consecutive slices of its key groups, used when they and their rows exceed the worker's
            memory. None: no slices.
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
    """Times of one attempt of one subtask, in milliseconds of a monotonic clock. None where a phase does not apply.

    Attributes:
        attempt: Spark's attempt number, from 0.
        started_ms: wall clock of its machine, ms since the epoch.
        total_ms: from its start to its acknowledgement.
        read_ms: reading a source's objects and decoding them to rows.
        exchange_wait_ms: waiting until all rows of all channels have arrived.
        emit_ms: emitting rows: routing, encoding, and passing them to Spark.
        stage_ms: writing the sinks' files.
        async_ms: the longest upload of a snapshot.
        async_wait_ms: waiting for uploads that were still running after the sinks' files were written.
        rows, bytes, buffers: its input. A source reads objects, so it has no buffers.
        alignment_ms: longest time between the first and the last barrier that one of its operators processed.
        in_flight_bytes: size of the buffers that it left unprocessed.
        left_ms: from the end of its processing to its deadline, negative if it was late. None without a deadline.
        requests: S3 requests.
        operators: times by operator uid. Time outside stateful operators is in none of them.
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
        """Return the sum of these times. None counts as 0."""
        return sum(getattr(self, name) or 0 for name in names)


def divided(tasks: Sequence[TaskTimes], job_ms: int | None) -> dict[str, int | None]:
    """Divide a Spark job's time among its phases, which add up to it.

    Levels run one after another, and the tasks of a level in parallel. The span from a level's first start to its last
    end is divided in the proportions of its tasks' own times. Clock differences between machines can make the levels
    appear longer than the job. Then all of them are scaled down to it.

        a job of 1,000 ms with one task: total_ms 800, process_ms 600, stage_ms 100, no other time
        process 600, stage 100, spark 300; 100 ms of the task are in no phase and count as spark

    Args:
        job_ms: None: nothing ran, or it was not measured.
    Returns: milliseconds per phase of `JOB_PHASES`. Without tasks `spark` has all of it and the others are None.
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
    spent = dict.fromkeys(_PARTS, 0.0)
    for level, span_ms in zip(by_level, spans, strict=True):
        busy_ms = max(1, sum(task.spent_ms("total_ms") for task in level))
        for phase, names in _PARTS.items():
            spent[phase] += scale * span_ms * sum(task.spent_ms(*names) for task in level) / busy_ms
    phases: dict[str, int | None] = {phase: round(ms) for phase, ms in spent.items()}
    return phases | {"spark": max(0, job_ms - sum(round(ms) for ms in spent.values()))}


def _span_ms(tasks: Sequence[TaskTimes]) -> int:
    """Return the time from the first start to the last end."""
    return max(task.started_ms + task.total_ms for task in tasks) - min(task.started_ms for task in tasks)


def attempts_prefix(level: int, subtask: int) -> str:
    """Return the name prefix of the time records of every attempt of a subtask."""
    return f"{level}-{subtask}-a"
