"""The checkpoints of a job, and its newest history."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from milepost.airflow.page.job_page import JobPage, OpenedJob
from milepost.jobmaster.jobmaster import JobMaster
from milepost.protocol.codec.records import to_json
from milepost.protocol.records.errors import InvalidRequest
from milepost.spec.load.lint import lint_report
from milepost.spec.load.load import LoadedJob
from milepost.spec.picture.graph_picture import graph_picture

SHOWN_CHECKPOINTS = 50
SHOWN_EVENTS = 50

router = APIRouter()


@router.get("/checkpoints")
def checkpoints(at: OpenedJob) -> HTMLResponse:
    """The checkpoints and the newest history of the job of a DAG."""
    return at.render("checkpoints.html", "checkpoints", **_shown(at))


def _shown(at: JobPage) -> dict[str, Any]:
    master = at.master()
    state = master.job_state()
    return {
        "timeline": state.timeline or "main",
        "reconciling": state.reconciling,
        "failed": state.last_failure if state.job_status == "failed" else "",
        "silent": _silent(master) if any(one.expect_every for one in at.loaded.spec.sources.values()) else [],
        "checkpoints": to_json(master.list_checkpoints(limit=SHOWN_CHECKPOINTS)),
        "events": master.history(limit=SHOWN_EVENTS),
        "picture": _picture(at.loaded),
    }


def _picture(job: LoadedJob) -> str:
    """Return the SVG of the job's graph, in which names are escaped; "" of a graph that is refused by now."""
    try:
        return graph_picture(lint_report(job))
    except InvalidRequest:
        return ""


def _silent(master: JobMaster) -> list[str]:
    """Return of each source where something is expected and nothing lands, since when."""
    sources = master.status().sources or {}
    return [f"source {name}: {one.overdue}" for name, one in sources.items() if one.overdue is not None]
