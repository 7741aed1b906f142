"""The FastAPI application with all pages; `checkpoints_page.py` mounts it in Airflow's server.

The pages are read-only: every route is a GET. A button that acts sends a request to Airflow's REST API. Each
page is a module of `routes` with a router. The routers of a job are included below its DAG's URL, which checks the
permission to read the DAG.
"""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from milepost.airflow.page.frame.access import READS_DAG
from milepost.airflow.page.frame.rendering import HEADERS, STATIC, Links, is_for_json, json_document, page
from milepost.airflow.page.jobs.job_page import JobPage
from milepost.airflow.page.jobs.job_reader import JOB_READER, STORE_AWAY
from milepost.airflow.page.jobs.suggested_action import action_after_error
from milepost.airflow.page.routes import (
    charts,
    checkpoint,
    checkpoints,
    compare,
    configuration,
    deployment,
    form,
    log,
    overview,
    rewind,
    run,
    runbook,
    summary,
    table,
    tables,
)
from milepost.errors import CheckpointError, NotFound, StoreUnavailable
from milepost.runbook import page_of

pages = FastAPI(title="Milepost", docs_url=None, redoc_url=None, openapi_url=None)
pages.mount("/static", StaticFiles(directory=STATIC), name="static")  # contains no job data, so no permission is needed

_UNKNOWN_PROBLEM = "This cannot be shown"

_JOB_ROUTES = (
    *(overview, checkpoints, checkpoint, compare, table, log, summary, rewind, charts, configuration, form, run),
)

for job_route in _JOB_ROUTES:
    pages.include_router(job_route.router, prefix="/jobs/{dag_id}", dependencies=[READS_DAG])
pages.include_router(deployment.router)
pages.include_router(tables.router)
pages.include_router(runbook.router)


@pages.exception_handler(CheckpointError)
def checkpoint_error_page(request: Request, error: CheckpointError) -> Response:
    """Return the page of a Milepost error, with status 404 for NotFound and 503 for all others."""
    status_code = 404 if isinstance(error, NotFound) else 503
    hint = error.hint or action_after_error(error).text
    heading = STORE_AWAY if isinstance(error, StoreUnavailable) else _UNKNOWN_PROBLEM
    return _problem_page(request, status_code, error.message, hint, runbook=page_of(error), heading=heading)


@pages.exception_handler(HTTPException)
def http_error_page(request: Request, error: HTTPException) -> Response:
    """Return the page of an HTTP error such as a missing permission. A browser without a login is redirected to it.

    The login redirects back to the requested page. A script gets status 401 instead.
    """
    if error.status_code == 401 and "text/html" in request.headers.get("accept", ""):
        address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        login = f"{Links.of(request).airflow}/api/v2/auth/login?{urlencode({'next': address})}"
        return RedirectResponse(login, status_code=303, headers=HEADERS)
    return _problem_page(request, error.status_code, str(error.detail), "")


@pages.exception_handler(RequestValidationError)
def invalid_url_page(request: Request, error: RequestValidationError) -> Response:
    """Return the page of a URL with an invalid path segment or query parameter."""
    messages = "; ".join(str(invalid["msg"]) for invalid in error.errors())
    return _problem_page(request, 422, "Invalid URL or query parameter.", messages)


def _problem_page(
    request: Request, status_code: int, problem: str, hint: str, *, runbook: str = "", heading: str = _UNKNOWN_PROBLEM
) -> Response:
    if is_for_json(request):
        return json_document(None, status_code, message=problem, hint=hint, runbook=runbook)
    shown: dict[str, object] = {"problem": problem, "hint": hint, "runbook": runbook, "problem_heading": heading}
    shown["is_away"] = heading == STORE_AWAY

    job_page: JobPage | None = getattr(request.state, "job_page", None)
    if job_page is not None:
        since = JOB_READER.failing_since(job_page.job) if heading == STORE_AWAY else ""
        shown["problem_heading"] = f"{heading} {since}".rstrip()
        return job_page.render("job_problem.html", None, status_code, **shown)
    return page(request, "problem.html", status_code, **shown)
