"""The page of one checkpoint: its outcome, figures by node and subtask, and times."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import HTMLResponse

from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.errors import StateCorrupt
from milepost.jobmaster import JobMaster
from milepost.views import View, checkpoint_view

router = APIRouter()


@router.get("/checkpoints/{checkpoint_id}")
def checkpoint(job_page: OpenedJob, checkpoint_id: Annotated[int, Path(ge=1)]) -> HTMLResponse:
    """Show one checkpoint. If its metadata is damaged, show what the log has, and the error."""
    with_spec = job_page.rights.may_read_code(job_page.dag_id)
    shown = partial(checkpoint_view, with_values=job_page.shows_values, with_spec=with_spec)
    return job_page.render("view.html", "checkpoints", view=job_page.query(partial(_read, checkpoint_id, shown)))


def _read(checkpoint_id: int, shown: Callable[..., View], master: JobMaster) -> View:
    try:
        return shown(master.reports.show(checkpoint_id, with_cost=False))
    except StateCorrupt as error:
        return shown(master.reports.show(checkpoint_id, details=False), error.message)
