"""The application of all pages, which `checkpoints_page.py` mounts in Airflow's server.

Reads only: every route is a GET, and what acts is a form of Airflow's own. A page is a module of `routes`, with a
router; those of a job are included below its DAG's address, where the right to see the DAG is asked for all of them.
"""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from milepost.airflow.page.frame.access import READS_DAG
from milepost.airflow.page.frame.rendering import STATIC, page
from milepost.airflow.page.jobs.job_page import JobPage
from milepost.airflow.page.jobs.next_step import step_of_error
from milepost.airflow.page.routes import (
    charts,
    checkpoint,
    checkpoints,
    configuration,
    deployment,
    form,
    overview,
    rewind,
    runbook,
    summary,
)
from milepost.errors import CheckpointError, NotFound
from milepost.runbook.addresses import page_of

pages = FastAPI(title="Milepost", docs_url=None, redoc_url=None, openapi_url=None)
pages.mount("/static", StaticFiles(directory=STATIC), name="static")  # the same for everybody: no right is needed

for of_a_job in (overview, checkpoints, checkpoint, summary, rewind, charts, configuration, form):
    pages.include_router(of_a_job.router, prefix="/jobs/{dag_id}", dependencies=[READS_DAG])
pages.include_router(deployment.router)
pages.include_router(runbook.router)


@pages.exception_handler(CheckpointError)
def refused(request: Request, error: CheckpointError) -> HTMLResponse:
    """Return the page of why there is nothing to see: 404 for what does not exist, 503 for what cannot be read now."""
    status_code = 404 if isinstance(error, NotFound) else 503
    hint = error.hint or step_of_error(error).words
    return _problem(request, status_code, error.message, hint, runbook=page_of(error))


@pages.exception_handler(HTTPException)
def denied(request: Request, error: HTTPException) -> HTMLResponse:
    """Return the page of what Airflow refuses: no login, or no right to see the DAG."""
    return _problem(request, error.status_code, str(error.detail), "")


@pages.exception_handler(RequestValidationError)
def misaddressed(request: Request, error: RequestValidationError) -> HTMLResponse:
    """Return the page of an address whose parts are not what they should be."""
    return _problem(request, 422, "There is no such page.", "; ".join(str(one["msg"]) for one in error.errors()))


def _problem(request: Request, status_code: int, problem: str, hint: str, *, runbook: str = "") -> HTMLResponse:
    opened: JobPage | None = getattr(request.state, "job_page", None)
    if opened is not None:
        return opened.render("job_problem.html", None, status_code, problem=problem, hint=hint, runbook=runbook)
    return page(request, "problem.html", status_code, problem=problem, hint=hint, runbook=runbook)
