"""Read a run of a job's DAG from Airflow's database: its tasks, plan, request for approval and result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.jobs.job import Job
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from sqlalchemy import select

from milepost.acts import ACTS, ActResult, ShownPlan
from milepost.airflow.compat import states_of_waiting_tasks
from milepost.airflow.operate.tasks import ACT, PLAN
from milepost.airflow.operators.base import RETURN_VALUE
from milepost.airflow.operators.shown_plan import digest_of
from milepost.airflow.runs.facts import RunFacts, run_facts, xcom_keys
from milepost.codec import from_json, to_json
from milepost.errors import NotFound, StateCorrupt
from milepost.jobmaster import hide_quotes

PROCESS_END = timedelta(seconds=2)
"""How long the process of a task may run after it has parked the task."""

LONGEST_PARKING = timedelta(seconds=60)
"""After this time a parked task can be answered, even without a heartbeat of its scheduler."""

WAITING_STATES = states_of_waiting_tasks()
"""States of a task that waits for a person's answer."""

_FINISHED = (DagRunState.SUCCESS, DagRunState.FAILED)


@dataclass(frozen=True, slots=True)
class RunTask:
    """A task of a run. state: "" before it is scheduled."""

    task_id: str
    state: str
    started: datetime | None
    ended: datetime | None


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A plan that waits for a person's answer.

    Attributes:
        digest_shown: whether the request has the digest of the plan in XCom.
        is_parked: whether the scheduler has seen the end of the requesting process (`_is_parked`).
    """

    task_id: str
    since: datetime
    digest_shown: bool
    is_parked: bool


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A run of a job's DAG.

    Attributes:
        triggered_by: name of the user who triggered it, "" if the schedule or a trigger did.
        plan: of an act. request: the unanswered request for its approval. result: of the act, once carried out.
        facts: the summary of a finished run, None before or if its XComs are damaged. problem: the damage, or "".
    """

    dag_id: str
    run_id: str
    state: str
    queued: datetime | None
    ended: datetime | None
    triggered_by: str
    is_paused: bool
    tasks: tuple[RunTask, ...]
    plan: ShownPlan | None
    request: ApprovalRequest | None
    result: ActResult | None
    facts: RunFacts | None
    problem: str

    @property
    def is_finished(self) -> bool:
        return self.state in _FINISHED

    def for_programs(self) -> dict[str, Any]:
        """Return the run as JSON values, without the state that its plan assumes."""
        plan, undo = self.plan, self.undo
        return {
            "dag_id": self.dag_id,
            "run_id": self.run_id,
            "state": self.state,
            "triggered_by": self.triggered_by or None,
            "queued": _iso(self.queued),
            "ended": _iso(self.ended),
            "is_paused": self.is_paused,
            "tasks": [
                {
                    "task_id": task.task_id,
                    "state": task.state or None,
                    "started": _iso(task.started),
                    "ended": _iso(task.ended),
                }
                for task in self.tasks
            ],
            "plan": None
            if plan is None
            else {
                "what": plan.what,
                "checkpoint_id": plan.checkpoint_id,
                "subject": plan.subject,
                "text": list(plan.text),
                "rows": dict(plan.rows),
            },
            "waits_since": None if self.request is None else _iso(self.request.since),
            "result": to_json(self.result),
            "facts": to_json(self.facts),
            "undo": None if undo is None else {"what": undo[0], "fields": dict(undo[1])},
            "problem": self.problem or None,
        }

    def without_quotes(self) -> ShownRun:
        """Return the run without messages that may quote data values."""
        plan, facts, result = self.plan, self.facts, self.result
        if plan is not None:
            plan = replace(plan, text=tuple(map(hide_quotes, plan.text)))
        if result is not None:
            result = replace(result, text=tuple(map(hide_quotes, result.text)))
        if facts is not None and (line := hide_quotes(facts.line)) != facts.line:
            facts = replace(facts, line=line, detail="", step="")
        return replace(self, plan=plan, facts=facts, result=result)

    @property
    def undo(self) -> tuple[str, Mapping[str, Any]] | None:
        """The act that undoes what the run did, and its fields; None: the run changed nothing, or no act does."""
        if self.plan is None or self.result is None or self.plan.what not in ACTS:
            return None
        return ACTS[self.plan.what].undo(self.plan, self.result)


def read_run(dag_id: str, run_id: str) -> ShownRun:
    """Return a run of a DAG. Raises NotFound: Airflow has no such run."""
    with create_session() as session:
        run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
        if run is None:
            raise NotFound(f"DAG {dag_id} has no run {run_id}.", hint="Airflow's page of the DAG lists its runs.")
        paused = session.scalar(select(DagModel.is_paused).where(DagModel.dag_id == dag_id))
        its_tasks = select(TaskInstance).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
        tasks = list(session.scalars(its_tasks))
        waiting = {task.id: task for task in tasks if task.state in WAITING_STATES}
        unanswered = select(HITLDetail).where(HITLDetail.ti_id.in_(waiting), HITLDetail.responded_at.is_(None))
        request = session.scalar(unanswered) if waiting else None
        waiting_task = None if request is None else waiting[request.ti_id]
        scheduler = None if waiting_task is None else session.get(Job, waiting_task.queued_by_job_id or 0)
        keys = xcom_keys(dag_id)
        its_xcoms = select(XComModel).where(
            XComModel.dag_id == dag_id,
            XComModel.run_id == run_id,
            XComModel.key.in_({key for _, key in keys}),
        )
        xcoms = {
            (xcom.task_id, xcom.key): XComModel.deserialize_value(xcom)
            for xcom in (session.scalars(its_xcoms) if keys else ())
        }
        state, problem = str(run.state), ""
        plan, result, facts = None, None, None
        try:
            plan = _decoded(ShownPlan, xcoms.get((PLAN, RETURN_VALUE)), PLAN)
            done = xcoms.get((ACT, RETURN_VALUE))
            result = None if done is None else ActResult.from_xcom(done, f"XCom of {ACT}")
            if keys and state in _FINISHED:
                facts = run_facts(dag_id, state == DagRunState.FAILED, xcoms)
        except StateCorrupt as error:
            problem = error.message
        return ShownRun(
            dag_id,
            run_id,
            state,
            run.queued_at,
            run.end_date,
            run.triggering_user_name or "",
            bool(paused),
            tuple(_task(task) for task in sorted(tasks, key=_by_start)),
            plan,
            None if waiting_task is None else _request(waiting_task, request, plan, scheduler),
            result,
            facts,
            problem,
        )


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _decoded(kind: type[Any], value: object, task_id: str) -> Any:
    return None if value is None else from_json(kind, value, f"XCom of {task_id}")


def _request(task: TaskInstance, request: HITLDetail, plan: ShownPlan | None, scheduler: Job | None) -> ApprovalRequest:
    digest_shown = plan is not None and digest_of(plan) in (request.body or "")
    return ApprovalRequest(task.task_id, request.created_at, digest_shown, _is_parked(task, scheduler))


def _is_parked(task: TaskInstance, scheduler: Job | None) -> bool:
    """Return whether the scheduler has processed the end of the process that requested an approval.

    An answer before that resumes the task, and the scheduler then mistakes the end of its first process for a kill. The
    scheduler processes such ends before each of its heartbeats, so a later heartbeat shows that it has.
    """
    if scheduler is None or scheduler.latest_heartbeat is None or task.updated_at is None:
        return True
    is_lost = datetime.now(UTC) > task.updated_at + LONGEST_PARKING
    return is_lost or scheduler.latest_heartbeat > task.updated_at + PROCESS_END


def _by_start(task: TaskInstance) -> tuple[bool, float, str]:
    started = task.start_date
    return started is None, started.timestamp() if started else 0.0, task.task_id


def _task(task: TaskInstance) -> RunTask:
    name = task.task_id if task.map_index < 0 else f"{task.task_id}[{task.map_index}]"
    return RunTask(name, str(task.state or ""), task.start_date, task.end_date)
