"""The page of one checkpoint: its outcome, figures by node and subtask, and times."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path
from fastapi.responses import Response

from milepost.airflow.page.frame.rendering import is_for_json
from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.errors import StateCorrupt
from milepost.jobmaster import CheckpointReport, JobMaster, hide_detail
from milepost.views import checkpoint_view

router = APIRouter()


@router.get("/checkpoints/{checkpoint_id}")
@router.get("/checkpoints/{checkpoint_id}.json")
def checkpoint(job_page: OpenedJob, checkpoint_id: Annotated[int, Path(ge=1)]) -> Response:
    """Show one checkpoint. If its metadata is damaged, show what the log has, and the error.

    Raises: HTTPException: the document has the spec and data values, which the user may not see.
    """
    with_spec, with_values = job_page.rights.may_read_code(job_page.dag_id), job_page.shows_values
    if is_for_json(job_page.request) and not (with_spec and with_values):
        raise HTTPException(403, "The document of a checkpoint has the spec and data values, which you may not see.")
    report, unreadable = job_page.query(partial(_read, checkpoint_id))
    report = report if with_values else hide_detail(report)
    view = checkpoint_view(report, unreadable, with_values=with_values, with_spec=with_spec)
    return job_page.render("view.html", "checkpoints", document=report, view=view)


def _read(checkpoint_id: int, master: JobMaster) -> tuple[CheckpointReport, str | None]:
    try:
        return master.reports.show(checkpoint_id, with_cost=False), None
    except StateCorrupt as error:
        return master.reports.show(checkpoint_id, details=False), error.message
