"""The page of a run: progress, the plan with its approval, and the result. It follows the run until its end."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from milepost.acts import NOT_PROVEN
from milepost.airflow.operators.approval import PlanApprovalOperator
from milepost.airflow.page.frame.access import READS_RUN
from milepost.airflow.page.frame.api_calls import answer_call, unpause_call
from milepost.airflow.page.frame.rendering import Links
from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.airflow.page.jobs.runs import ShownRun, read_run
from milepost.views import Meaning

router = APIRouter(dependencies=READS_RUN)


@router.get("/run")
@router.get("/run.json")
def run(job_page: OpenedJob, run: str = "") -> Response:
    """Show a run of the DAG in the URL.

    Args:
        run: the run id.
    """
    shown = read_run(job_page.dag_id, run)
    shown = shown if job_page.shows_values else shown.without_quotes()
    links, rights, dag_id = Links.of(job_page.request), job_page.rights, job_page.dag_id
    may_approve = rights.may_approve(dag_id)
    answers = [
        (option, answer_call(links, dag_id, run, shown.request.task_id, option))
        for option in (PlanApprovalOperator.APPROVE, PlanApprovalOperator.REJECT)
        if shown.request is not None and shown.request.is_parked and shown.request.digest_shown
    ]
    return job_page.render(
        "run.html",
        None,
        document=shown.for_programs(),
        run=shown,
        banner=_banner(shown),
        answers=answers if may_approve else [],
        may_approve=may_approve,
        unpause=unpause_call(links, dag_id) if shown.is_paused and rights.may_pause(dag_id) else None,
        undo=shown.undo if rights.may_trigger(dag_id) else None,
    )


def _banner(run: ShownRun) -> tuple[Meaning, str]:
    """Return tone and heading of the state of a run."""
    if run.state == "failed":
        return Meaning.BAD, "Failed"
    if run.state == "success":
        if run.result is not None and run.result.outcome == NOT_PROVEN:
            return Meaning.WARN, "Done: the list is not proven"
        changed_nothing = run.plan is not None and run.result is None
        return (Meaning.CALM, "Done: nothing was changed") if changed_nothing else (Meaning.GOOD, "Done")
    if run.is_paused:
        return Meaning.WARN, f"{run.dag_id} is paused: this run starts when it is unpaused"
    if run.request is not None:
        return Meaning.WARN, "The plan waits for an approval. Nothing changes before that."
    if run.plan is not None:
        return Meaning.BUSY, "Running: the plan is being carried out"
    return Meaning.BUSY, "Queued: Airflow has not started the run yet" if run.state == "queued" else "Running"
