"""Find blocked work in the DAGs of jobs: paused DAGs, queued runs, plans to approve, tasks without a pool slot.

The number of queries does not depend on the number of jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.log import Log
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import func, select

from milepost.airflow.operators.dag_ids import epoch_dag_id, land_dag_prefix, operate_dag_id
from milepost.airflow.page.frame.access import Rights
from milepost.airflow.page.jobs.dag_jobs import DagJob
from milepost.airflow.page.jobs.runs import WAITING_STATES
from milepost.airflow.page.jobs.suggested_action import EPOCH, SuggestedAction
from milepost.epoch import counted
from milepost.views import Meaning

NORMAL_DELAY = timedelta(seconds=10)
"""How long a run or a task may wait for the scheduler without being listed."""

_MAX_ROWS = 500
"""Queued runs, requests, tasks and log entries that one page reads, the oldest first."""


class Wait(StrEnum):
    """Why something waits."""

    APPROVAL = "approval"
    PAUSED = "paused"
    QUEUED = "queued"
    POOL = "pool"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Something that waits.

    Attributes:
        text: what waits for what. who: the user who caused it, "" if unknown. since: None if unknown.
        run_id: "" for a paused DAG.
    """

    kind: Wait
    tone: Meaning
    dag_id: str
    text: str
    who: str
    since: datetime | None
    run_id: str = ""


def dags_of(job: DagJob, readable: Collection[str]) -> list[str]:
    """Return the ids of a job's DAGs that the user may read."""
    name = job.loaded.spec.name
    own = {job.dag_id, epoch_dag_id(name), operate_dag_id(name)}
    return [dag_id for dag_id in readable if dag_id in own or dag_id.startswith(land_dag_prefix(name))]


def read_waiting(dag_ids: Collection[str], rights: Rights) -> dict[str, list[Waiting]]:
    """Return what waits in each DAG, approvals first, as far as the user may read it.

    Args:
        dag_ids: of DAGs that the user may read.
    """
    rights.prefetch(dag_ids)
    with_runs = [dag_id for dag_id in dag_ids if rights.may_read_runs(dag_id)]
    with_requests = [dag_id for dag_id in with_runs if rights.may_read_requests(dag_id)]
    with_log = [dag_id for dag_id in dag_ids if rights.may_read_log(dag_id)]
    waiting: dict[str, list[Waiting]] = {dag_id: [] for dag_id in dag_ids}
    with create_session() as session:
        for found in (
            *_requests(session, with_requests),
            *_pauses(session, dag_ids, with_runs, with_log),
            *_queued_runs(session, with_runs),
            *_pool_waits(session, with_runs),
        ):
            waiting[found.dag_id].append(found)
    return waiting


def _requests(session: Any, dag_ids: Collection[str]) -> Iterator[Waiting]:
    query = (
        select(TaskInstance.dag_id, TaskInstance.run_id, HITLDetail.subject, HITLDetail.created_at)
        .add_columns(DagRun.triggering_user_name)
        .join(TaskInstance, HITLDetail.ti_id == TaskInstance.id)
        .join(DagRun, (DagRun.dag_id == TaskInstance.dag_id) & (DagRun.run_id == TaskInstance.run_id))
        .where(TaskInstance.dag_id.in_(dag_ids), TaskInstance.state.in_(WAITING_STATES))
        .where(HITLDetail.responded_at.is_(None))
        .order_by(HITLDetail.created_at)
        .limit(_MAX_ROWS)
    )
    for dag_id, run_id, subject, since, user in session.execute(query):
        text = f"{subject}: the plan waits for an approval."
        yield Waiting(Wait.APPROVAL, Meaning.WARN, dag_id, text, _triggered_by(user), since, run_id)


def next_step(action: SuggestedAction, waiting: Iterable[Waiting], dag_id: str) -> str:
    """Return what to do next about a job, by its suggested action and what waits in its DAGs.

    Args:
        dag_id: DAG of its epochs.
    """
    waits = {(one.kind, one.dag_id) for one in waiting}
    if not action.act and any(kind is Wait.APPROVAL for kind, _ in waits):
        return "Review the plan that waits."
    if action.act == EPOCH and (Wait.PAUSED, dag_id) in waits:
        return f"{action.text} The DAG is paused: unpause it first."
    return action.text


def _pauses(
    session: Any, dag_ids: Collection[str], with_runs: Collection[str], with_log: Collection[str]
) -> Iterator[Waiting]:
    query = select(DagModel.dag_id, DagModel.timetable_summary).where(DagModel.dag_id.in_(dag_ids), DagModel.is_paused)
    paused = dict(session.execute(query).all())
    if not paused:
        return
    queued = dict(session.execute(_run_counts(DagRunState.QUEUED, paused)).all())
    pauses = _newest_pauses(session, [dag_id for dag_id in paused if dag_id in with_log])
    for dag_id, schedule in sorted(paused.items()):
        number = queued.get(dag_id, 0) if dag_id in with_runs else 0
        user, since = pauses.get(dag_id, ("", None))
        is_scheduled = schedule is not None and not schedule.startswith(("None", "Never"))
        effect = f"{counted(number, 'queued run')} cannot start." if number else "no run starts."
        tone = Meaning.WARN if number or is_scheduled else Meaning.CALM
        yield Waiting(
            Wait.PAUSED, tone, dag_id, f"{dag_id} is paused: {effect}", f"paused by {user}" if user else "", since
        )


def _newest_pauses(session: Any, dag_ids: Collection[str]) -> dict[str, tuple[str, datetime | None]]:
    """Return who paused each DAG, and when, from the newest entry about that in Airflow's audit log."""
    query = (
        select(Log.dag_id, Log.owner, Log.dttm)
        .where(Log.dag_id.in_(dag_ids), Log.event == "patch_dag", Log.extra.like('%"is_paused": true%'))
        .order_by(Log.dttm.desc())
        .limit(_MAX_ROWS)
    )
    newest: dict[str, tuple[str, datetime | None]] = {}
    for dag_id, owner, time in session.execute(query) if dag_ids else ():
        newest.setdefault(dag_id, (owner or "", time))
    return newest


def _queued_runs(session: Any, dag_ids: Collection[str]) -> Iterator[Waiting]:
    """Yield the runs that have been queued for some time, without those of paused DAGs."""
    query = (
        select(DagRun.dag_id, DagRun.run_id, DagRun.queued_at, DagRun.triggering_user_name, DagModel.max_active_runs)
        .join(DagModel, DagModel.dag_id == DagRun.dag_id)
        .where(DagRun.dag_id.in_(dag_ids), DagRun.state == DagRunState.QUEUED, ~DagModel.is_paused)
        .where(DagRun.queued_at < datetime.now(UTC) - NORMAL_DELAY)
        .order_by(DagRun.queued_at)
        .limit(_MAX_ROWS)
    )
    queued = session.execute(query).all()
    active = dict(session.execute(_run_counts(DagRunState.RUNNING, [row[0] for row in queued])).all()) if queued else {}
    for dag_id, run_id, since, user, limit in queued:
        running = active.get(dag_id, 0)
        is_full = limit is not None and running >= limit
        reason = f"{running} of at most {limit} runs are active" if is_full else "the scheduler has not started it"
        text = f"A run of {dag_id} is queued: {reason}."
        yield Waiting(Wait.QUEUED, Meaning.WARN, dag_id, text, _triggered_by(user), since, run_id)


def _pool_waits(session: Any, dag_ids: Collection[str]) -> Iterator[Waiting]:
    """Yield the tasks of running runs that wait because their pool has too few open slots."""
    query = (
        select(TaskInstance, DagRun.triggering_user_name)
        .join(DagRun, (DagRun.dag_id == TaskInstance.dag_id) & (DagRun.run_id == TaskInstance.run_id))
        .where(TaskInstance.dag_id.in_(dag_ids), TaskInstance.state == TaskInstanceState.SCHEDULED)
        .where(DagRun.state == DagRunState.RUNNING)
        .order_by(TaskInstance.scheduled_dttm)
        .limit(_MAX_ROWS)
    )
    tasks = session.execute(query).all()
    pools: Mapping[str, Any] = Pool.slots_stats(session=session) if tasks else {}
    for task, user in tasks:
        pool = pools.get(task.pool)
        if pool is not None and pool["open"] >= task.pool_slots:
            continue
        why = "does not exist" if pool is None else f"has {pool['open']:g} of {pool['total']:g} slots open"
        text = f"Task {task.task_id} of {task.dag_id} waits for pool {task.pool}, which {why}."
        yield Waiting(Wait.POOL, Meaning.WARN, task.dag_id, text, _triggered_by(user), task.scheduled_dttm, task.run_id)


def _run_counts(state: DagRunState, dag_ids: Collection[str]) -> Any:
    counts = select(DagRun.dag_id, func.count()).where(DagRun.dag_id.in_(dag_ids), DagRun.state == state)
    return counts.group_by(DagRun.dag_id)


def _triggered_by(user: str | None) -> str:
    return f"triggered by {user}" if user else ""
