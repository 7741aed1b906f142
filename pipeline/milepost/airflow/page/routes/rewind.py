"""The rewind points page: checkpoints to go back to, and what that would change."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from milepost.acts import ROLLBACK, TO
from milepost.airflow.operators.dag_ids import operate_dag_id
from milepost.airflow.page.jobs.acts import PageAct
from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.codec import to_json

SHOWN_POINTS = 50

router = APIRouter()


@router.get("/rewind")
@router.get("/rewind.json")
def rewind(job_page: OpenedJob) -> Response:
    """Show the rewind points, newest first, each with a button that plans the rollback."""
    points = job_page.query(lambda master: master.rollbacks.rewind_points(SHOWN_POINTS))
    operate = operate_dag_id(job_page.name)

    def rollback(checkpoint_id: int) -> PageAct:
        fields = {TO: str(checkpoint_id)}
        return PageAct(job_page.name, job_page.dag_id, operate, "Roll back…", "", ROLLBACK.name, fields)

    is_allowed = job_page.rights.may_trigger(operate)
    return job_page.render(
        "rewind.html",
        "rewind",
        document={"points": points},
        points=to_json(points),
        rollback=rollback,
        is_allowed=is_allowed,
    )
