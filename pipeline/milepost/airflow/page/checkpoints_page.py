"""The Checkpoints page of a job: a tab of its DAGs in Airflow's UI.

Reads only. A plugin's routes answer without login by themselves, so each route carries Airflow's own user and DAG
permission. Whatever comes from data or from the store is escaped by the template.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin
from fastapi import Depends, FastAPI, Path
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

PREFIX = "/milepost"
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


def config_folder() -> pathlib.Path:
    """Return where the job specs are: as told, or `config/` beside the folder of the DAG files."""
    told = os.environ.get("MILEPOST_CONFIG")
    return pathlib.Path(told) if told else pathlib.Path(conf.get("core", "dags_folder")).parent / "config"


@pages.get(
    "/checkpoints/{dag_id}",
    response_class=HTMLResponse,
    dependencies=[Depends(requires_access_dag(method="GET"))],
)
def checkpoints(dag_id: str) -> HTMLResponse:
    """The checkpoints and the newest history of the job that has a DAG of this id."""
    return _answer(dag_id, "checkpoints_page.html", _read)


@pages.get(
    "/checkpoints/{dag_id}/{checkpoint_id}",
    response_class=HTMLResponse,
    dependencies=[Depends(requires_access_dag(method="GET"))],
)
def checkpoint(dag_id: str, checkpoint_id: Annotated[int, Path(ge=1)]) -> HTMLResponse:
    """Where the time of one checkpoint's epoch went."""
    return _answer(dag_id, "checkpoint_page.html", lambda job: _read_one(job, checkpoint_id))


def _answer(dag_id: str, template: str, read: Callable[[Any], dict[str, Any]]) -> HTMLResponse:
    """Return the page of what `read` finds of the job, or of why there is nothing to see."""
    from milepost.airflow.operators.job_specs import job_of_dag
    from milepost.protocol.records.errors import CheckpointError, NotFound

    try:
        shown = read(job_of_dag(config_folder(), dag_id))
    except NotFound as error:
        return _page(404, dag_id=dag_id, problem=error.message, hint=error.hint)
    except CheckpointError as error:
        return _page(503, dag_id=dag_id, problem=error.message, hint=error.hint)
    return _page(200, template, dag_id=dag_id, problem="", hint="", **shown)


def _read_one(job: Any, checkpoint_id: int) -> dict[str, Any]:
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


def _read(job: Any) -> dict[str, Any]:
    from milepost.jobmaster.jobmaster import JobMaster
    from milepost.protocol.codec.records import to_json

    master = JobMaster(job)
    state = master.job_state()
    return {
        "timeline": state.timeline or "main",
        "reconciling": state.reconciling,
        "failed": state.last_failure if state.job_status == "failed" else "",
        "job": job.spec.name,
        "storage": job.spec.storage,
        "checkpoints": to_json(master.list_checkpoints(limit=SHOWN_CHECKPOINTS)),
        "events": master.history(limit=SHOWN_EVENTS),
    }


def _page(status_code: int, template: str = "checkpoints_page.html", /, **shown: Any) -> HTMLResponse:
    values: dict[str, Any] = {
        "job": "",
        "storage": "",
        "timeline": "",
        "reconciling": [],
        "failed": "",
        "checkpoints": [],
        "events": [],
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


class CheckpointsPage(AirflowPlugin):
    name = "milepost_checkpoints"
    fastapi_apps = [{"app": pages, "url_prefix": PREFIX, "name": "Milepost"}]  # noqa: RUF012 - Airflow's own shape
    external_views = [  # noqa: RUF012 - Airflow's own shape
        {
            "name": "Checkpoints",
            "href": f"{PREFIX}/checkpoints/{{DAG_ID}}",
            "destination": "dag",
            "url_route": "checkpoints",
        }
    ]
