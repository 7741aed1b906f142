"""The checkpoints of a job, a stretch of its history at a time: the timelines drawn, what is live, what was left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from milepost.airflow.page.drawings.timeline_graph import TimelineHistory, timeline_graph
from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.jobmaster.jobmaster import CheckpointReport, TimelineSwitch

SHOWN_CHECKPOINTS = 50
SHOWN_ENTRIES = 100

router = APIRouter()

Status = Literal["completed", "subsumed", "aborted", "pending"]
Position = Annotated[str | None, Query(pattern=r"^[0-9]{1,20}-[0-9]{1,20}$")]


@dataclass(frozen=True, slots=True)
class LeftLine:
    """Checkpoints of a timeline that the live head does not continue, newest first; switch: what left it."""

    timeline: str
    role: str
    checkpoints: tuple[CheckpointReport, ...]
    switch: TimelineSwitch | None

    @property
    def number(self) -> int:
        return len(self.checkpoints)


@router.get("/checkpoints")
def checkpoints(
    at: OpenedJob, following: Position = None, status: Status | None = None, timeline: str | None = None
) -> HTMLResponse:
    """The checkpoints of the job, newest first, from where the page before has ended; all, or some of them."""
    state, found = at.ask(
        lambda master: (
            master.job_state(),
            master.history_page(SHOWN_CHECKPOINTS, following, status=status, timeline=timeline),
        )
    )
    chosen = {name: value for name, value in (("status", status), ("timeline", timeline)) if value is not None}
    if chosen:
        return at.render(
            "chosen_checkpoints.html",
            "checkpoints",
            found=found,
            statuses=get_args(Status),
            chosen=chosen,
        )
    history = TimelineHistory(found.checkpoints, found.switches, state.timelines, state.timeline)
    left = list(_left_lines(history))
    apart = {one.checkpoint_id for line in left for one in line.checkpoints}
    return at.render(
        "checkpoints.html",
        "checkpoints",
        state=state,
        newest=following is None,
        marks=list(_marks(found.checkpoints)) if following is None else [],
        rows=[one for one in found.checkpoints if one.checkpoint_id not in apart],
        left=left,
        switches=found.switches,
        following=found.following,
        statuses=get_args(Status),
        unreadable=found.unreadable,
        graph=timeline_graph(history, lambda checkpoint_id: at.url("checkpoints", checkpoint_id)),
    )


@router.get("/log")
def log(at: OpenedJob) -> HTMLResponse:
    """The newest entries of the manifest log, which is all that ever changed the job."""
    return at.render("log.html", "log", events=at.ask(lambda master: master.history(SHOWN_ENTRIES)))


def _left_lines(history: TimelineHistory) -> Iterator[LeftLine]:
    """Yield what is not live, by timeline, the newest one first. What was given up is told among the live ones."""
    switches = {switch.left: switch for switch in history.switches}
    dead = [one for one in history.checkpoints if one.live is False and one.status not in ("aborted", "pending")]
    for timeline in dict.fromkeys(one.timeline for one in dead if one.timeline is not None):
        own = tuple(one for one in dead if one.timeline == timeline)
        yield LeftLine(timeline, history.role(timeline), own, switches.get(timeline))


def _marks(found: Sequence[CheckpointReport]) -> Iterator[tuple[str, CheckpointReport]]:
    """Yield the newest checkpoint of each kind that people look for first."""
    newest = {
        "Newest completed": (one for one in found if one.status == "completed" and one.live is not False),
        "Newest failed": (one for one in found if one.status == "aborted"),
        "Running": (one for one in found if one.status == "pending"),
        "Newest savepoint": (one for one in found if one.kind == "savepoint"),
    }
    for name, some in newest.items():
        first = next(some, None)
        if first is not None:
            yield name, first
