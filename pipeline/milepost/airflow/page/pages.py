"""The pages of a job, behind the tab that `checkpoints_page.py` gives its DAGs in Airflow's UI.

Reads only. The job is read from what Airflow keeps of the DAG, where a task documents its spec. A plugin's routes
answer without login by themselves, so each route carries Airflow's own user and DAG permission. Whatever comes from
data or from the store is escaped by the template.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.models.serialized_dag import SerializedDagModel
from fastapi import Depends, FastAPI, Path
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from milepost.airflow.connections import airflow_connection

if TYPE_CHECKING:
    from milepost.jobmaster.jobmaster import JobMaster
    from milepost.spec.load.load import LoadedJob

SHOWN_CHECKPOINTS = 50
SHOWN_EVENTS = 50
HERE = pathlib.Path(__file__).resolve().parent
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}

templates = Environment(
    loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
pages = FastAPI(title="Milepost", docs_url=None, redoc_url=None, openapi_url=None)


@pages.get(
    "/checkpoints/{dag_id}",
    response_class=HTMLResponse,
    dependencies=[Depends(requires_access_dag(method="GET"))],
)
def checkpoints(dag_id: str, job: str = "") -> HTMLResponse:
    """The checkpoints and the newest history of the job of a DAG; of several, of the one that is named."""
    return _answer(dag_id, job, "checkpoints_page.html", _read)


@pages.get(
    "/checkpoints/{dag_id}/{checkpoint_id}",
    response_class=HTMLResponse,
    dependencies=[Depends(requires_access_dag(method="GET"))],
)
def checkpoint(dag_id: str, checkpoint_id: Annotated[int, Path(ge=1)], job: str = "") -> HTMLResponse:
    """Where the time of one checkpoint's epoch went."""
    return _answer(dag_id, job, "checkpoint_page.html", lambda loaded: _read_one(loaded, checkpoint_id))


def _answer(dag_id: str, name: str, template: str, read: Callable[[LoadedJob], dict[str, Any]]) -> HTMLResponse:
    """Return the page of what `read` finds of the DAG's job of this name, or of why there is nothing to see.

    Args:
        name: "" for the only one, or the first by name.
    """
    from milepost.protocol.records.errors import CheckpointError, NotFound

    about: dict[str, Any] = {"dag_id": dag_id}
    try:
        jobs = jobs_of_dag(dag_id)
        named = name or next(iter(jobs))
        if named not in jobs:
            raise NotFound(f"DAG {dag_id} has no job {named}.", hint=f"Its jobs: {', '.join(jobs)}.")
        about["others"] = [other for other in jobs if other != named]
        shown = read(jobs[named])
    except NotFound as error:
        return _page(404, **about, problem=error.message, hint=error.hint)
    except CheckpointError as error:
        return _page(503, **about, problem=error.message, hint=error.hint)
    return _page(200, template, **about, problem="", hint="", **shown)


def jobs_of_dag(dag_id: str) -> dict[str, LoadedJob]:
    """Return the jobs that have tasks in a DAG as Airflow keeps it, in order of their names.

    Raises:
        NotFound: Airflow knows no such DAG, or no valid spec has a task in it.
        InvalidRequest: a spec of it is not valid for the version of Milepost that this server has.
    """
    from milepost.protocol.records.errors import NotFound
    from milepost.spec.load.load import from_text

    dag = SerializedDagModel.get_dag(dag_id)
    plain = [task for task in dag.tasks if not task.is_mapped] if dag is not None else []
    documented = [task for task in plain if task._task_module.startswith("milepost.") and task.doc_yaml]
    specs = [from_text(task.doc_yaml, pathlib.Path(task.doc)) for task in documented]
    loaded = [replace(job, find_connection=airflow_connection) for job in specs]
    if not loaded:
        raise NotFound(
            f"DAG {dag_id} is not a DAG of a job: no task of it documents a job's spec.",
            hint="If it should be one, look at the DAG's own page for what is wrong with its spec.",
        )
    return {job.spec.name: job for job in sorted(loaded, key=lambda job: job.spec.name)}


def _read_one(job: LoadedJob, checkpoint_id: int) -> dict[str, Any]:
    from milepost.jobmaster.jobmaster import JobMaster
    from milepost.protocol.codec.records import to_json

    document = to_json(JobMaster(job).show(checkpoint_id))
    phases: dict[str, Any] = dict(document.get("phases") or {})
    total_ms = phases.pop("total_ms", None)
    longest_ms = max((spent for spent in phases.values() if spent is not None), default=0)
    return {
        "job": job.spec.name,
        "checkpoint": document,
        "phases": [(name.removesuffix("_ms"), spent) for name, spent in phases.items() if spent is not None],
        "total_ms": total_ms,
        "longest_ms": longest_ms or 1,
        "tasks": document.get("tasks") or [],
    }


def _read(job: LoadedJob) -> dict[str, Any]:
    from milepost.jobmaster.jobmaster import JobMaster
    from milepost.protocol.codec.records import to_json

    master = JobMaster(job)
    state = master.job_state()
    return {
        "timeline": state.timeline or "main",
        "reconciling": state.reconciling,
        "failed": state.last_failure if state.job_status == "failed" else "",
        "silent": _silent(master) if any(one.expect_every for one in job.spec.sources.values()) else [],
        "job": job.spec.name,
        "storage": job.spec.storage,
        "checkpoints": to_json(master.list_checkpoints(limit=SHOWN_CHECKPOINTS)),
        "events": master.history(limit=SHOWN_EVENTS),
        "picture": _picture(job),
    }


def _picture(job: LoadedJob) -> str:
    """Return the SVG of the job's graph, in which names are escaped; "" of a graph that is refused by now."""
    from milepost.protocol.records.errors import InvalidRequest
    from milepost.spec.load.lint import lint_report
    from milepost.spec.picture.graph_picture import graph_picture

    try:
        return graph_picture(lint_report(job))
    except InvalidRequest:
        return ""


def _silent(master: JobMaster) -> list[str]:
    """Return of each source where something is expected and nothing lands, since when."""
    sources = master.status().sources or {}
    return [f"source {name}: {one.overdue}" for name, one in sources.items() if one.overdue is not None]


def _page(status_code: int, template: str = "checkpoints_page.html", /, **shown: Any) -> HTMLResponse:
    values: dict[str, Any] = {
        "job": "",
        "storage": "",
        "timeline": "",
        "reconciling": [],
        "failed": "",
        "silent": [],
        "checkpoints": [],
        "events": [],
        "picture": "",
        "others": [],
    } | shown
    html = templates.get_template(template).render(values)
    return HTMLResponse(html, status_code=status_code, headers=HEADERS)


def seconds(value: Any) -> str:
    return f"{value / 1000:.1f} s" if isinstance(value, (int, float)) else ""


def milliseconds(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "-"


def size(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return ""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return ""


def count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def moment(value: Any) -> str:
    """Return an ISO 8601 time in UTC, to the second."""
    return str(value)[:19].replace("T", " ") if value else ""


templates.filters.update(seconds=seconds, milliseconds=milliseconds, size=size, count=count, moment=moment)
