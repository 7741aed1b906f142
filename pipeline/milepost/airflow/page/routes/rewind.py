"""The page of what a job can go back to, and what going back would change."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from milepost.airflow.operate.rollback import ROLLBACK, TO
from milepost.airflow.page.frame.rendering import Links
from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.codec.records import to_json

SHOWN_POINTS = 50

router = APIRouter()


@router.get("/rewind")
def rewind(at: OpenedJob) -> HTMLResponse:
    """The rewind points of a job, newest first, each with the form of a rollback there."""
    points = at.ask(lambda master: master.rewind_points(SHOWN_POINTS))
    links = Links.of(at.request)

    def form(checkpoint_id: int) -> str:
        return links.form(at.name, ROLLBACK.name, **{TO: checkpoint_id})

    return at.render("rewind.html", "rewind", points=to_json(points), form=form)
