"""Timings divide an epoch's time into the phases that people read.

What is known before the commit point is part of `_metadata`. What follows it (commit, notify, subsume) lies beside it,
in one small object per process that did some of it, among the measurements of the completing token: nothing depends on
it, it goes with them, and writing it may fail.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from milepost.epoch.metadata import CheckpointMetadata
from milepost.epoch.step_clock import StepClock
from milepost.epoch.task_times import COMPLETE, INCOMPLETE, TaskTimes, attempts_prefix, divided
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.codec.records import decode, encode
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.errors import CheckpointError, NotFound
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.storage.at_once import at_once
from milepost.storage.layout import after_commit_key, after_commit_prefix, metrics_prefix
from milepost.storage.requests import StoreRequests, own_put

_LOG = logging.getLogger(__name__)

_NOTIFY = "notify "

_PHASE_OF_STEP = {"validate": "commit", "complete": "commit", "notify": "notify", "subsume": "subsume"}

PHASES = (
    "plan", "begin", "session", "copy",
    "read", "exchange", "restore", "process", "sync", "stage", "async", "spark",
    "gate", "prepare", "commit", "notify", "subsume", "other",
)  # fmt: skip
"""In the order in which they begin. With `other`, what nobody measured, they add up to `total`.

plan: sweep, listings, input record, claim. begin: token, base, code. session: until Spark is there. copy: of a restored
checkpoint. read to spark: the Spark job, `task_times.JOB_PHASES`. prepare: the sinks' part before the commit point.
commit: the metadata, the verdict, the transition.
"""


@dataclass(frozen=True, slots=True)
class AfterCommit:
    """What one process measured of an epoch's steps from its commit on.

    Attributes:
        ended_ms: wall clock, ms since the epoch. commit_ms, subsume_ms: None when another process did it.
        notify_ms: by sink. notified_ms: of several that were committed side by side; None: the sum of those.
        requests: to S3, by phase.
    """

    stored_format: ClassVar[str] = "milepost.times/2"

    ended_ms: int
    commit_ms: int | None = None
    notify_ms: dict[str, int] = field(default_factory=dict)
    subsume_ms: int | None = None
    requests: dict[str, StoreRequests] = field(default_factory=dict)
    notified_ms: int | None = None


def post_commit_times(clock: StepClock, written_ms: int = 0) -> AfterCommit:
    """What a clock measured of the steps ``validate``, ``complete``, ``notify`` and ``subsume``; ends its step.

    A step ``notify <sink>`` is of one sink: alone, or as a part of ``notify``.

    Args:
        written_ms: of `_metadata`, which cannot say it itself: part of the commit.
    """
    clock.end()
    steps = clock.steps
    commit_ms = written_ms + clock.ms("validate", "complete") if "complete" in steps else None
    notify_ms = {step.removeprefix(_NOTIFY): ms for step, ms in steps.items() if step.startswith(_NOTIFY)}
    requests = {phase: clock.requests(*named) for phase, named in _steps_of_phases(steps).items()}
    return AfterCommit(clock.now_ms, commit_ms, notify_ms, steps.get("subsume"), requests, steps.get("notify"))


def _steps_of_phases(steps: Iterable[str]) -> dict[str, list[str]]:
    """Return the steps of a clock that belong to each phase after the commit point, of those that have one."""
    found: dict[str, list[str]] = {}
    for step in steps:
        phase = _PHASE_OF_STEP.get(step.partition(" ")[0])
        if phase is not None:
            found.setdefault(phase, []).append(step)
    return found


def keep(
    context: JobContext, checkpoint_id: CheckpointId, token: FencingToken, by: str, times: AfterCommit
) -> AfterCommit:
    """Store what was measured after the commit; one request. Never fails: it is a measurement, and the epoch is done.

    Args:
        by: which step, or steps, of the epoch the process was for; a later try of them replaces it.
    Returns: what was measured, that request among it.
    """
    if times.requests:
        last = [*times.requests][-1]
        times = replace(times, requests={**times.requests, last: times.requests[last] + own_put(context.store)})
    try:
        context.store.put(after_commit_key(checkpoint_id, token, by), encode(times))
    except CheckpointError as error:
        _LOG.warning("checkpoint %s: the times of %s were not kept: %s", checkpoint_id, by, error.message)
    return times


def kept(context: JobContext, checkpoint_id: CheckpointId, token: FencingToken) -> tuple[AfterCommit, ...]:
    """Return what was measured after the commit; what cannot be read is left out."""
    found = []
    for stat in context.store.list(after_commit_prefix(checkpoint_id, token)):
        try:
            found.append(decode_after_commit(context.store.get(stat.key), stat.key))
        except CheckpointError as error:
            _LOG.warning("checkpoint %s: %s", checkpoint_id, error.message)
    return tuple(found)


def decode_after_commit(body: bytes, key: str) -> AfterCommit:
    """Raises StateCorrupt: unreadable, or of another format."""
    return decode(AfterCommit, body, key)


def phases_of(metadata: CheckpointMetadata, after: Sequence[AfterCommit]) -> dict[str, int | None]:
    """Milliseconds by phase, ``<phase>_ms``, with ``total_ms``: from the trigger's start to the end of the last step.

    None: not measured. Without a total there is no `other` either.
    """
    timings: Mapping[str, int] = metadata.timings
    found = {phase: timings.get(f"{phase}_ms") for phase in PHASES}
    found |= divided(metadata.tasks, timings.get("job_ms"))
    for times in after:
        if times.commit_ms is not None:
            found["commit"] = times.commit_ms
        if times.subsume_ms is not None:
            found["subsume"] = times.subsume_ms
    notified = [sum(times.notify_ms.values()) if times.notified_ms is None else times.notified_ms for times in after]
    found["notify"] = sum(notified) if any(times.notify_ms for times in after) else None
    total_ms = None
    if metadata.started_ms is not None and after:
        total_ms = max(times.ended_ms for times in after) - metadata.started_ms
        other_ms = total_ms - sum(ms for ms in found.values() if ms is not None)
        # Each phase is rounded. More than that below zero: clocks of several machines that disagree.
        found["other"] = max(0, other_ms) if other_ms >= -len(PHASES) else None
    return {f"{phase}_ms": found[phase] for phase in PHASES} | {"total_ms": total_ms}


REQUEST_PHASES = ("plan", "begin", "session", "job", "tasks", "gate", "prepare", "commit", "notify", "subsume")
"""Who made requests, in the order in which they begin. job: the driver while the tasks run. tasks: those of Spark."""


def requests_of(metadata: CheckpointMetadata, after: Sequence[AfterCommit]) -> dict[str, StoreRequests]:
    """Return the requests of an epoch to S3 by phase; {} when it made none.

    Attempts that Spark lost left no measurements: theirs are in no figure.
    """
    found = dict.fromkeys(REQUEST_PHASES, StoreRequests()) | {
        "tasks": sum((task.requests for task in metadata.tasks), StoreRequests())
    }
    measured = [("commit" if step == "write" else step, made) for step, made in metadata.requests.items()]
    measured += [item for times in after for item in times.requests.items()]
    for phase, made in measured:
        if phase in found:  # what is stored is not trusted
            found[phase] += made
    return found if any(made.made for made in found.values()) else {}


@dataclass(frozen=True, slots=True)
class StepTimes:
    """A step of an epoch's driver. Attributes: started_ms: wall clock of its machine, since the epoch."""

    step: str
    started_ms: int
    took_ms: int


_OF_TRY = ("begin", "session", "job", "gate", "prepare")
"""The steps that follow one another from the beginning of the try to its metadata."""


def steps_of(metadata: CheckpointMetadata, after: Sequence[AfterCommit]) -> tuple[StepTimes, ...]:
    """Return when each step ran, in order; between processes, and where nobody measured, are gaps."""
    timings, found = metadata.timings, list[StepTimes]()
    if metadata.started_ms is not None and "plan_ms" in timings:
        found.append(StepTimes("plan", metadata.started_ms, timings["plan_ms"]))
    at_ms = timings.get("began_ms", 0)
    for step in _OF_TRY if at_ms else ():
        found.append(StepTimes(step, at_ms, timings.get(f"{step}_ms", 0)))
        at_ms += found[-1].took_ms
    for times in after:
        ran = [("commit", times.commit_ms), *((f"notify {sink}", ms) for sink, ms in times.notify_ms.items())]
        measured = [(step, ms) for step, ms in (*ran, ("subsume", times.subsume_ms)) if ms is not None]
        at_ms = times.ended_ms - sum(ms for _, ms in measured)
        for step, ms in measured:
            found.append(StepTimes(step, at_ms, ms))
            at_ms += ms
    return tuple(sorted(found, key=lambda one: one.started_ms))


def notified_of(after: Sequence[AfterCommit]) -> dict[str, int]:
    """Milliseconds of the commit of each sink's part."""
    return {sink: ms for times in after for sink, ms in sorted(times.notify_ms.items())}


def task_times(context: JobContext, pending: PendingCheckpoint) -> tuple[TaskTimes, ...]:
    """Return what attempts of a checkpoint's tasks left of what they measured, incomplete ones too.

    Raises what the store does.
    """
    keys = [stat.key for stat in context.store.list(metrics_prefix(pending.checkpoint_id, pending.token))]
    return tuple(at_once(context.store, partial(_task_times, context), keys))


def task_times_of(
    context: JobContext, pending: PendingCheckpoint, subtasks: Iterable[tuple[int, int]]
) -> tuple[TaskTimes, ...]:
    """Return what subtasks that acknowledged left of what they measured: level and subtask of each.

    Their first attempts are asked for by name; where Spark has repeated one it is looked for.
    Raises what the store does.
    """

    def times(subtask: tuple[int, int]) -> TaskTimes | None:
        attempts = metrics_prefix(pending.checkpoint_id, pending.token) + attempts_prefix(*subtask)
        try:
            return _task_times(context, f"{attempts}0{COMPLETE}")
        except NotFound:
            left = [stat.key for stat in context.store.list(attempts) if not stat.key.endswith(INCOMPLETE)]
            return _task_times(context, left[0]) if left else None

    return tuple(filter(None, at_once(context.store, times, subtasks)))


def _task_times(context: JobContext, key: str) -> TaskTimes:
    return decode(TaskTimes, context.store.get(key), key)
