"""The rewind points page: checkpoints to go back to, and what that would change."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from milepost.acts import ROLLBACK, TO
from milepost.airflow.page.frame.rendering import Links
from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.codec import to_json

SHOWN_POINTS = 50

router = APIRouter()


@router.get("/rewind")
def rewind(job_page: OpenedJob) -> HTMLResponse:
    """Show the rewind points, newest first, each with a link to the form of the rollback."""
    points = job_page.query(lambda master: master.rollbacks.rewind_points(SHOWN_POINTS))
    links = Links.of(job_page.request)

    def form(checkpoint_id: int) -> str:
        return links.form(job_page.name, ROLLBACK.name, **{TO: checkpoint_id})

    return job_page.render("rewind.html", "rewind", points=to_json(points), form=form)
