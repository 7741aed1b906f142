"""The checkpoints of a job, and its newest history."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from milepost.airflow.page.job_page import JobPage, OpenedJob
from milepost.jobmaster.jobmaster import JobMaster
from milepost.protocol.codec.records import to_json

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
    }


def _silent(master: JobMaster) -> list[str]:
    """Return of each source where something is expected and nothing lands, since when."""
    sources = master.status().sources or {}
    return [f"source {name}: {one.overdue}" for name, one in sources.items() if one.overdue is not None]
