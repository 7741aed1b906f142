"""The DAG `<job>__resume`: let a FAILED job run again, once its cause is fixed, without a shell on the host."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from milepost.airflow.dags.dag_settings import form_dag
from milepost.airflow.operators import forms
from milepost.airflow.operators.base import JobOperator
from milepost.airflow.operators.job_specs import resume_dag_id, spec_as_docs
from milepost.airflow.task_output.outcome import Reaction
from milepost.spec.load.load import LoadedJob

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

RESUME = "resume"


def resume_dag(job: LoadedJob) -> DAG:
    """Return the DAG `<job>__resume`."""
    name = job.spec.name
    with form_dag(
        job,
        resume_dag_id(name),
        f"Let {name} run again after it FAILED and the cause is fixed",
        _DOC.format(name=name),
        {forms.DRY_RUN: forms.switch(False, "Only show", "Log why the job failed, and end. Nothing is changed.")},
    ) as dag:
        ResumeOperator(task_id=RESUME, spec_path=str(job.path), **spec_as_docs(job))
    return dag


class ResumeOperator(JobOperator):
    """Logs why the job is FAILED, and clears it. A job that is not FAILED is left as it is."""

    if_busy = Reaction.FAIL

    def act(self, context: Context) -> dict[str, Any]:
        master = self.jobmaster()
        before = master.job_state()
        name, status = before.job, before.job_status
        log.info("job %s, timeline %s, incarnation %s: %s", name, before.timeline, before.incarnation, status)
        if before.last_failure is not None:
            log.info("its last failure: %s: %s", before.last_failure, before.last_failure_detail)
        if context["params"][forms.DRY_RUN]:
            log.info("only shown: nothing was changed")
            return {"resumed": False, "status": status}
        done = master.resume(self.session(context))
        log.info("the job %s %s", "was FAILED and is" if done.resumed else "was not FAILED; it is", done.status)
        return {"resumed": done.resumed, "status": done.status}


_DOC = """### {name}: resume

After more failed epochs than `checkpointing.tolerable_failures` the job is FAILED, and each run of `{name}__epoch`
fails at once until a person says that the cause is fixed. Fix it, then trigger this DAG; *only show* logs the cause and
changes nothing. The history names this run; why it was right belongs in the run's note. The next run of `{name}__epoch`
takes up the input where the last completed checkpoint left it.
"""
