"""Divide an epoch's time and requests into phases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milepost.epoch.timing import divided
from milepost.protocol.records import CompletedCheckpoint
from milepost.storage import StoreRequests

if TYPE_CHECKING:
    from milepost.epoch import CheckpointMetadata
    from milepost.jobmaster.job.measurements import PostCommitTimes

PHASES = (
    "plan", "begin", "session", "copy",
    "read", "exchange", "restore", "process", "sync", "stage", "async", "spark",
    "gate", "prepare", "commit", "notify", "airflow", "other", "subsume",
)  # fmt: skip
"""Phases in the order in which they start. All but `subsume`, which follows the publication, add up to `total`.

plan: sweep, listings, input record, claim. begin: token, base, code. session: starting Spark. copy: of a restored
checkpoint. read to spark: the Spark job, `task_times.JOB_PHASES`. prepare: the sinks' work before the commit point.
commit: metadata, verdict, transition. notify: until every table shows the checkpoint. airflow: between the processes
of Airflow's tasks: the end of one, the scheduler, the start of the next. other: unmeasured time.
"""

AFTER_PUBLICATION = "subsume"
"""The phase that is not part of the epoch's duration."""

PHASE_GROUPS: Mapping[str, tuple[str, ...]] = {
    "plan": ("plan", "begin", "session", "copy"),
    "read": ("read", "exchange"),
    "process": ("restore", "process", "sync", "stage", "async"),
    "spark": ("spark",),
    "gate": ("gate", "prepare"),
    "publish": ("commit", "notify"),
    "airflow": ("airflow",),
    "other": ("other",),
}
"""Groups of phases in charts. Each phase of an epoch's duration is in exactly one group."""


def time_by_phase_group(phases: Mapping[str, int | None]) -> dict[str, int]:
    """Return milliseconds by group.

    Args:
        phases: as `phases_of` returns them.
    """
    return {group: sum(phases.get(f"{phase}_ms") or 0 for phase in members) for group, members in PHASE_GROUPS.items()}


def measured_duration_ms(checkpoint: CompletedCheckpoint) -> int | None:
    """Return how long the epoch took until its last table was published; None: not published, or not measured."""
    measured = checkpoint.summary.get("duration_ms")
    return measured if isinstance(measured, int) else None


def epoch_duration_ms(checkpoint: CompletedCheckpoint) -> int | None:
    """Return the measured duration, or else the time up to the commit point by the store's clock.

    The clock of S3 has whole seconds. None: both times are equal.
    """
    measured = measured_duration_ms(checkpoint)
    return measured or checkpoint.completed_time_ms - checkpoint.trigger_time_ms or None


def phases_of(
    metadata: CheckpointMetadata, after: Sequence[PostCommitTimes], duration_ms: int | None = None
) -> dict[str, int | None]:
    """Return milliseconds by phase, ``<phase>_ms``, and ``total_ms``: from the trigger until all tables are published.

    None: not measured. Without a total, or without `after`, there is no `other`. Example: plan 100, commit 30 and a
    total of 150 give other 20.

    Args:
        duration_ms: as recorded with the last sink's confirmation; None: it follows from `after`.
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
    total_ms = _total_ms(metadata, after) if duration_ms is None else duration_ms
    if total_ms is not None and metadata.started_ms is not None and _are_tasks(after):
        span = metadata.started_ms, metadata.started_ms + total_ms
        steps = [step for step in steps_of(metadata, after) if step.step != AFTER_PUBLICATION]
        measured["airflow"] = total_ms - _covered_ms(steps, span)
        measured["notify"] = _covered_ms([step for step in steps if step.step.startswith("notify ")], span)
    if total_ms is not None and after:
        parts = (ms for phase, ms in measured.items() if ms is not None and phase != AFTER_PUBLICATION)
        other_ms = total_ms - sum(parts)
        # Phases are rounded, so `other` can be slightly negative. A larger deficit means clocks that disagree.
        measured["other"] = max(0, other_ms) if other_ms >= -len(PHASES) else None
    return {f"{phase}_ms": measured[phase] for phase in PHASES} | {"total_ms": total_ms}


def _total_ms(metadata: CheckpointMetadata, after: Sequence[PostCommitTimes]) -> int | None:
    """Return the time from the trigger to the end of the last commit to a table; None: not measured."""
    ends = [times.ended_ms - (times.subsume_ms or 0) for times in after if times.commit_ms or times.notify_ms]
    return None if metadata.started_ms is None or not ends else max(ends) - metadata.started_ms


def _are_tasks(after: Sequence[PostCommitTimes]) -> bool:
    """Return whether separate processes committed and published each table, as Airflow's tasks do."""
    return len(after) > 1 and not any(times.commit_ms is not None and times.notify_ms for times in after)


def _covered_ms(steps: Iterable[StepTimes], span: tuple[int, int]) -> int:
    """Return how much of a span is covered by steps: steps from 0 to 5 and 3 to 9 cover 7 of the span 2 to 20."""
    covered, reached = 0, span[0]
    for step in sorted(steps, key=lambda step: step.started_ms):
        start, end = max(step.started_ms, reached), min(step.started_ms + step.took_ms, span[1])
        covered += max(0, end - start)
        reached = max(reached, end)
    return covered


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
