"""Extra link of a task that opens its checkpoint's page."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from airflow.sdk import BaseOperatorLink

from milepost.airflow.operators.base import RETURN_VALUE, TRIGGER, JobOperator
from milepost.airflow.page_urls import checkpoints_url

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class CheckpointLink(BaseOperatorLink):
    """Links to the page of the task's checkpoint, or to all checkpoints of the job if it had none."""

    name = "Checkpoint"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        from airflow.sdk.execution_time.xcom import XCom

        from milepost.jobspec.load import load_job

        assert isinstance(operator, JobOperator)
        trigger = operator.sibling_id(TRIGGER)
        triggered = XCom.get_one(key=RETURN_VALUE, dag_id=ti_key.dag_id, task_id=trigger, run_id=ti_key.run_id)
        checkpoint = f"/{triggered['checkpoint_id']}" if triggered and "checkpoint_id" in triggered else ""
        job = urlencode({"job": load_job(operator.spec_path).spec.name})
        return f"{checkpoints_url(quote(ti_key.dag_id))}{checkpoint}?{job}"
