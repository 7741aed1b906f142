"""Runs in the database of `kept_dags`, written there as Airflow's scheduler and workers write them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from milepost.acts import ShownPlan
from milepost.airflow.compat import states_of_waiting_tasks
from milepost.airflow.operators.dag_ids import operate_dag_id
from milepost.airflow.operators.shown_plan import digest_of


def keep_run(
    dag_id: str,
    run_id: str = "manual__1",
    *,
    state: str = "running",
    tasks: Mapping[str, str] | None = None,
    xcoms: Mapping[tuple[str, str], Any] | None = None,
    asks: ShownPlan | None = None,
    parked: bool = True,
    user: str = "anna",
) -> str:
    """Write a run that a user triggered. Returns its id.

    Args:
        tasks: task id -> state. xcoms: task id and key -> value, as JSON.
        asks: the plan whose approval the task `approve` waits for. parked: whether the scheduler has seen it wait.
    """
    from airflow.jobs.job import Job
    from airflow.models.hitl import HITLDetail
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.models.xcom import XComModel
    from airflow.sdk import timezone
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState, TaskInstanceState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    states = dict(tasks or {}) | ({"approve": states_of_waiting_tasks()[0]} if asks is not None else {})
    with create_session() as session:
        dag = SerializedDagModel.get_dag(dag_id, session=session)
        assert dag is not None
        run = dag.create_dagrun(
            run_id=run_id,
            logical_date=None,
            data_interval=None,
            run_after=timezone.utcnow(),
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.UI,
            triggering_user_name=user,
            state=DagRunState(state),
            conf={"what": "rollback"} if dag_id == operate_dag_id(dag_id.partition("__")[0]) else {},
            session=session,
        )
        for instance in run.get_task_instances(session=session):
            if instance.task_id in states:
                instance.state = TaskInstanceState(states[instance.task_id])
                if instance.state not in (TaskInstanceState.SCHEDULED, TaskInstanceState.QUEUED):
                    instance.start_date = timezone.utcnow()
            if asks is not None and instance.task_id == "approve":
                heartbeat = timezone.utcnow() + timedelta(seconds=60 if parked else 0)
                scheduler = Job(job_type="SchedulerJob", latest_heartbeat=heartbeat)
                session.add(scheduler)
                session.flush()
                scheduler.latest_heartbeat, instance.queued_by_job_id = heartbeat, scheduler.id
                body = f"* `plan digest {digest_of(asks)}`"
                options = ["Approve", "Reject"]
                session.add(HITLDetail(ti_id=instance.id, options=options, subject=asks.subject, body=body, params={}))
        session.flush()
        for (task_id, key), value in (xcoms or {}).items():
            XComModel.set(key, value, dag_id=dag_id, task_id=task_id, run_id=run_id, session=session)
    return run_id
