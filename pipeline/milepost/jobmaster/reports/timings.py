"""Timings divide an epoch's time, and its requests, into the phases that people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from milepost.epoch.metadata import CheckpointMetadata
from milepost.epoch.timing.task_times import divided
from milepost.jobmaster.job.measurements import PostCommitTimes
from milepost.storage.requests import StoreRequests

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

PHASE_GROUPS: Mapping[str, tuple[str, ...]] = {
    "plan": ("plan", "begin", "session", "copy"),
    "read": ("read", "exchange"),
    "process": ("restore", "process", "sync", "stage", "async"),
    "spark": ("spark",),
    "gate": ("gate", "prepare"),
    "publish": ("commit", "notify", "subsume"),
    "other": ("other",),
}
"""What a picture of an epoch tells apart -> the phases in it: each of them once."""


def time_by_phase_group(phases: Mapping[str, int | None]) -> dict[str, int]:
    """Return milliseconds by group of phases. Args: phases: as `phases_of` returns them."""
    return {group: sum(phases.get(f"{one}_ms") or 0 for one in members) for group, members in PHASE_GROUPS.items()}


def phases_of(metadata: CheckpointMetadata, after: Sequence[PostCommitTimes]) -> dict[str, int | None]:
    """Return milliseconds by phase, ``<phase>_ms``, and ``total_ms``: from the trigger to the end of the last step.

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


def requests_of(metadata: CheckpointMetadata, after: Sequence[PostCommitTimes]) -> dict[str, StoreRequests]:
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
    return found if any(each.total for each in found.values()) else {}


@dataclass(frozen=True, slots=True)
class StepTimes:
    """A step of an epoch's driver. Attributes: started_ms: wall clock of its machine, since the epoch."""

    step: str
    started_ms: int
    took_ms: int


_OF_TRY = ("begin", "session", "job", "gate", "prepare")
"""The steps that follow one another from the beginning of the try to its metadata."""


def steps_of(metadata: CheckpointMetadata, after: Sequence[PostCommitTimes]) -> tuple[StepTimes, ...]:
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


def notify_times_by_sink(after: Sequence[PostCommitTimes]) -> dict[str, int]:
    """Return milliseconds of the commit of each sink's part."""
    return {sink: ms for times in after for sink, ms in sorted(times.notify_ms.items())}
