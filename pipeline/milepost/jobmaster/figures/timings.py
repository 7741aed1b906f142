"""Divide an epoch's time and requests into phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from milepost.epoch import CheckpointMetadata
from milepost.epoch.timing import divided
from milepost.jobmaster.job.measurements import PostCommitTimes
from milepost.storage import StoreRequests

PHASES = (
    "plan", "begin", "session", "copy",
    "read", "exchange", "restore", "process", "sync", "stage", "async", "spark",
    "gate", "prepare", "commit", "notify", "subsume", "other",
)  # fmt: skip
"""Phases in the order in which they start. `other` is unmeasured time, so that all add up to `total`.

plan: sweep, listings, input record, claim. begin: token, base, code. session: starting Spark. copy: of a restored
checkpoint. read to spark: the Spark job, `task_times.JOB_PHASES`. prepare: the sinks' work before the commit point.
commit: metadata, verdict, transition.
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
"""Groups of phases in charts. Each phase is in exactly one group."""


def time_by_phase_group(phases: Mapping[str, int | None]) -> dict[str, int]:
    """Return milliseconds by group.

    Args:
        phases: as `phases_of` returns them.
    """
    return {group: sum(phases.get(f"{phase}_ms") or 0 for phase in members) for group, members in PHASE_GROUPS.items()}


def phases_of(metadata: CheckpointMetadata, after: Sequence[PostCommitTimes]) -> dict[str, int | None]:
    """Return milliseconds by phase, ``<phase>_ms``, and ``total_ms`` from the trigger to the end of the last step.

    None: not measured. Without a total there is no `other`. Example: plan 100, commit 30 and a total of 150 give
    other 20.
    """
    timings: Mapping[str, int] = metadata.timings
    measured = {phase: timings.get(f"{phase}_ms") for phase in PHASES}
    measured |= divided(metadata.tasks, timings.get("job_ms"))
    for times in after:
        if times.commit_ms is not None:
            measured["commit"] = times.commit_ms
        if times.subsume_ms is not None:
            measured["subsume"] = times.subsume_ms
    notified = [sum(times.notify_ms.values()) if times.notified_ms is None else times.notified_ms for times in after]
    measured["notify"] = sum(notified) if any(times.notify_ms for times in after) else None
    total_ms = None
    if metadata.started_ms is not None and after:
        total_ms = max(times.ended_ms for times in after) - metadata.started_ms
        other_ms = total_ms - sum(ms for ms in measured.values() if ms is not None)
        # Phases are rounded, so `other` can be slightly negative. A larger deficit means clocks that disagree.
        measured["other"] = max(0, other_ms) if other_ms >= -len(PHASES) else None
    return {f"{phase}_ms": measured[phase] for phase in PHASES} | {"total_ms": total_ms}


REQUEST_PHASES = ("plan", "begin", "session", "job", "tasks", "gate", "prepare", "commit", "notify", "subsume")
"""Phases that make requests, in the order in which they start. job: the driver during the Spark job. tasks: Spark's."""


def requests_of(metadata: CheckpointMetadata, after: Sequence[PostCommitTimes]) -> dict[str, StoreRequests]:
    """Return an epoch's requests to S3 by phase; {} if it made none.

    Requests of task attempts that Spark lost are unknown and not included.
    """
    by_phase = dict.fromkeys(REQUEST_PHASES, StoreRequests()) | {
        "tasks": sum((task.requests for task in metadata.tasks), StoreRequests())
    }
    measured = [("commit" if step == "write" else step, made) for step, made in metadata.requests.items()]
    measured += [item for times in after for item in times.requests.items()]
    for phase, made in measured:
        if phase in by_phase:  # stored names are not trusted
            by_phase[phase] += made
    return by_phase if any(made.total for made in by_phase.values()) else {}


@dataclass(frozen=True, slots=True)
class StepTimes:
    """A step of an epoch's driver. started_ms: wall clock of its machine, in ms since 1970."""

    step: str
    started_ms: int
    took_ms: int


_TRY_STEPS = ("begin", "session", "job", "gate", "prepare")
"""Consecutive steps of a try, from its start to its metadata."""


def steps_of(metadata: CheckpointMetadata, after: Sequence[PostCommitTimes]) -> tuple[StepTimes, ...]:
    """Return when each step ran, in order. There are gaps between processes and for unmeasured steps."""
    timings, steps = metadata.timings, list[StepTimes]()
    if metadata.started_ms is not None and "plan_ms" in timings:
        steps.append(StepTimes("plan", metadata.started_ms, timings["plan_ms"]))
    at_ms = timings.get("began_ms", 0)
    for step in _TRY_STEPS if at_ms else ():
        steps.append(StepTimes(step, at_ms, timings.get(f"{step}_ms", 0)))
        at_ms += steps[-1].took_ms
    for times in after:
        ran = [("commit", times.commit_ms), *((f"notify {sink}", ms) for sink, ms in times.notify_ms.items())]
        measured = [(step, ms) for step, ms in (*ran, ("subsume", times.subsume_ms)) if ms is not None]
        at_ms = times.ended_ms - sum(ms for _, ms in measured)
        for step, ms in measured:
            steps.append(StepTimes(step, at_ms, ms))
            at_ms += ms
    return tuple(sorted(steps, key=lambda step: step.started_ms))


def notify_times_by_sink(after: Sequence[PostCommitTimes]) -> dict[str, int]:
    """Return the milliseconds of each sink's commit."""
    return {sink: ms for times in after for sink, ms in sorted(times.notify_ms.items())}
