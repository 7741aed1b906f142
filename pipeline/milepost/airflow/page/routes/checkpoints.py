"""The checkpoints page, which shows the history in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from fastapi import APIRouter, Query
from fastapi.responses import Response

from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.airflow.page.jobs.timeline_roles import TimelineHistory
from milepost.jobmaster import CheckpointReport, hide_details, hide_failure
from milepost.views import TimelineNames, act_table

SHOWN_CHECKPOINTS = 50

router = APIRouter()

Status = Literal["completed", "subsumed", "aborted", "pending"]
Position = Annotated[str | None, Query(pattern=r"^[0-9]{1,20}-[0-9]{1,20}$")]


@dataclass(frozen=True, slots=True)
class AbandonedCheckpoints:
    """Checkpoints of one timeline that the live head does not continue, newest first. role: of the timeline."""

    timeline: str
    role: str
    checkpoints: tuple[CheckpointReport, ...]

    @property
    def number(self) -> int:
        return len(self.checkpoints)


@router.get("/checkpoints")
@router.get("/checkpoints.json")
def checkpoints(
    job_page: OpenedJob, following: Position = None, status: Status | None = None, timeline: str | None = None
) -> Response:
    """Show the checkpoints, newest first, optionally of one status or timeline.

    Args:
        following: position after which the page begins, from the link of the previous page; None: at the newest.
    """
    state, history_page = job_page.query(
        lambda master: (
            master.reports.job_state(),
            master.reports.history_page(SHOWN_CHECKPOINTS, following, status=status, timeline=timeline),
        )
    )
    if not job_page.shows_values:
        state, history_page = hide_failure(state), hide_details(history_page)
    filters = {name: value for name, value in (("status", status), ("timeline", timeline)) if value is not None}
    if filters:
        return job_page.render(
            "filtered_checkpoints.html",
            "checkpoints",
            document=history_page,
            history_page=history_page,
            statuses=get_args(Status),
            filters=filters,
        )
    names = TimelineNames(history_page.origins)
    history = TimelineHistory(history_page.checkpoints, history_page.switches, state.timelines, state.timeline, names)
    abandoned = list(_abandoned(history))
    folded_ids = {report.checkpoint_id for timeline in abandoned for report in timeline.checkpoints}
    return job_page.render(
        "checkpoints.html",
        "checkpoints",
        document=history_page,
        state=state,
        newest=following is None,
        landmarks=list(_landmarks(history_page.checkpoints)) if following is None else [],
        rows=[report for report in history_page.checkpoints if report.checkpoint_id not in folded_ids],
        abandoned=abandoned,
        acts=history_page.acts,
        acts_table=act_table(history_page.acts),
        names=names,
        following=history_page.following,
        statuses=get_args(Status),
        unreadable=history_page.unreadable,
    )


def _abandoned(history: TimelineHistory) -> Iterator[AbandonedCheckpoints]:
    """Yield the checkpoints that are not live, by timeline, the newest timeline first.

    Aborted and pending checkpoints are not among them: the page lists those with the live ones.
    """
    dead = [
        report for report in history.checkpoints if report.live is False and report.status not in ("aborted", "pending")
    ]
    for timeline in dict.fromkeys(report.timeline for report in dead if report.timeline is not None):
        reports = tuple(report for report in dead if report.timeline == timeline)
        role, ending, following = history.role(timeline), history.ending(timeline), history.continued_by(timeline)
        if following is not None:
            left = "" if ending is None else f"; {_LEFT.get(ending.act, 'these were left')}"
            role = f"which is continued {history.names.with_id(following)}{left}"
        yield AbandonedCheckpoints(history.names.with_id(timeline), role, reports)


_LEFT = {"rollback": "a rollback left these", "backfill": "a backfill replaced these"}
"""Act that left checkpoints of a timeline which continues -> what it did."""


def _landmarks(reports: Sequence[CheckpointReport]) -> Iterator[tuple[str, CheckpointReport]]:
    """Yield title and checkpoint of the newest completed, failed and running checkpoint, and of the newest savepoint.

    Args:
        reports: newest first.
    """
    candidates = {
        "Newest completed": (report for report in reports if report.status == "completed" and report.live is not False),
        "Newest failed": (report for report in reports if report.status == "aborted"),
        "Running": (report for report in reports if report.status == "pending"),
        "Newest savepoint": (report for report in reports if report.kind == "savepoint"),
    }
    for title, matching in candidates.items():
        newest = next(matching, None)
        if newest is not None:
            yield title, newest
