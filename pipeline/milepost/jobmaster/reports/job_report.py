"""Report a job as a whole: before its first epoch, while it runs, and after its end (I4)."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.epoch import iso_ms
from milepost.protocol.manifest.timelines import JobPhase, job_phase, result_of
from milepost.protocol.records import CleanUp, Holder, ManifestState, Timeline


@dataclass(frozen=True, slots=True)
class ResultReport:
    """How an incarnation ended; head: None for the empty state."""

    incarnation: int
    status: str
    clean_up: str
    at: str
    head: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class LeaderReport:
    """The session that claimed a timeline, its token and its process."""

    session_id: str
    token: int
    holder: Holder


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """The point at which a timeline branched off its parent."""

    timeline: str
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class TimelineReport:
    """A timeline; head, pending: None for none."""

    timeline: str
    role: str
    parent: BranchPoint | None
    head: int | None
    pending: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """A job as a whole.

    Attributes:
        waits_for: what an initializing job waits for, as text; None otherwise.
        result: None until the incarnation has ended.
        leader: None before a session has claimed the timeline in this incarnation, and after its end.
        timeline: the live one. reconciling: sinks that do not show it yet.
    """

    job: str
    job_status: str
    waits_for: str | None
    incarnation: int | None
    result: ResultReport | None
    leader: LeaderReport | None
    timeline: str | None
    timelines: tuple[TimelineReport, ...]
    reconciling: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState(JobReport):
    """A job as a whole, and why its last epoch failed."""

    last_failure: str | None
    last_failure_detail: str | None


def report_job(job: str, state: ManifestState | None) -> JobReport:
    """Return the report of a head; None: the job has never run."""
    result = result_of(state.results, state.incarnation) if state is not None else None
    leader = state.timeline().leader if state is not None else None
    return JobReport(
        job=job,
        job_status=job_phase(state).value,
        waits_for=_waits_for(state),
        incarnation=state.incarnation if state is not None else None,
        result=None
        if result is None
        else ResultReport(
            incarnation=result.incarnation,
            status=result.status.value,
            clean_up=result.clean_up.value,
            at=iso_ms(result.at_ms),
            head=int(result.head) or None,
            detail=result.detail,
        ),
        leader=None if leader is None else LeaderReport(leader.session_id, int(leader.token), leader.holder),
        timeline=state.live if state is not None else None,
        timelines=tuple(map(_timeline, state.timelines)) if state is not None else (),
        reconciling=tuple(state.reconciliation.sinks) if state is not None and state.reconciliation is not None else (),
    )


def _waits_for(state: ManifestState | None) -> str | None:
    if job_phase(state) is not JobPhase.INITIALIZING:
        return None
    return "its first epoch" if state is None else f"an epoch to claim timeline {state.live}"


def _timeline(timeline: Timeline) -> TimelineReport:
    parent = timeline.parent
    return TimelineReport(
        timeline=timeline.timeline_id,
        role=timeline.role.value,
        parent=None if parent is None else BranchPoint(parent[0], int(parent[1])),
        head=int(timeline.head) or None,
        pending=None if timeline.pending is None else int(timeline.pending.checkpoint_id),
    )


def ended_step(job: str, result: ResultReport) -> str:
    """Format the next step for an ended job."""
    end = f"the job was {result.status} at {result.at}"
    if result.clean_up == CleanUp.DIRTY.value:
        return f"{end}, its clean-up is not complete: milepost cancel {job} finishes it"
    return f"{end}: milepost start {job} starts it again"
