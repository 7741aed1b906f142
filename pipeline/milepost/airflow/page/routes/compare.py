"""The page that compares two epochs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.views import comparison_view

router = APIRouter()

CheckpointNumber = Annotated[int | None, Query(ge=1)]


@router.get("/compare")
@router.get("/compare.json")
def compare(job_page: OpenedJob, before: CheckpointNumber = None, after: CheckpointNumber = None) -> Response:
    """Show the figures of two epochs side by side: by default those of the head and of the epoch before it."""
    comparison = job_page.query(lambda master: master.reports.compare_epochs(before, after))
    return job_page.render("view.html", "", document=comparison, view=comparison_view(comparison))
