"""Summarize a finished run from its XComs: one line, and why it failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from milepost.acts import ActResult, ShownPlan
from milepost.airflow.operate.tasks import ACT, APPROVAL, PLAN, RECONCILE
from milepost.airflow.operators import tasks
from milepost.airflow.operators.base import RETURN_VALUE
from milepost.airflow.operators.dag_ids import EPOCH_SUFFIX, LAND_INFIX, OPERATE_SUFFIX
from milepost.airflow.operators.land_input import LAND
from milepost.airflow.operators.shown_plan import REJECTED_BY
from milepost.airflow.operators.xcom import RanEpoch, decode_xcom
from milepost.airflow.task_output.outcome import FAILURE_KEY, Failure
from milepost.codec import from_json
from milepost.errors import StateCorrupt

XComs = Mapping[tuple[str, str], Any]
"""XCom values of a run, by task id and key."""

_EPOCH_TASKS = (*reversed(tasks.BEFORE_THE_COMMIT_POINT), tasks.NOTIFY, tasks.SUBSUME, tasks.ABORT)
_OPERATE_TASKS = (PLAN, APPROVAL, ACT, RECONCILE)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The summary of a finished run. Templates of notifiers read these fields.

    Attributes:
        job: name of the job. what: name of the act, "epoch" or "landing". checkpoint_id: None if there was none.
        line: the summary on one line.
        reason: name of a `CheckpointFailureReason`. detail: why it failed. step: what to do. runbook: URL of its page.
            All four are "" for a run that did not fail, or if unknown.
    """

    job: str
    what: str
    checkpoint_id: int | None
    line: str
    reason: str = ""
    detail: str = ""
    step: str = ""
    runbook: str = ""


def xcom_keys(dag_id: str) -> list[tuple[str, str]]:
    """Return the XComs to read for a run, as task id and key; [] if the DAG is not one of a job."""
    if dag_id.endswith(EPOCH_SUFFIX):
        return _keys((tasks.TRIGGER, tasks.RUN), _EPOCH_TASKS)
    if LAND_INFIX in dag_id:
        return _keys((LAND,), (LAND,))
    return _keys((PLAN, APPROVAL, ACT), _OPERATE_TASKS) if dag_id.endswith(OPERATE_SUFFIX) else []


def _keys(returning: tuple[str, ...], failing: tuple[str, ...]) -> list[tuple[str, str]]:
    return [*((task, RETURN_VALUE) for task in returning), *((task, FAILURE_KEY) for task in failing)]


def run_facts(dag_id: str, failed: bool, xcoms: XComs) -> RunFacts:
    """Return the facts of a run of a job's DAG.

    Args:
        xcoms: the existing XComs among those of `xcom_keys`.
    Raises: StateCorrupt: an XCom has another shape.
    """
    if LAND_INFIX in dag_id:
        return _landing(dag_id.partition(LAND_INFIX)[0], failed, xcoms)
    epoch = dag_id.endswith(EPOCH_SUFFIX)
    job = dag_id.removesuffix(EPOCH_SUFFIX if epoch else OPERATE_SUFFIX)
    failure = _failure(_EPOCH_TASKS if epoch else _OPERATE_TASKS, xcoms) if failed else None
    what, checkpoint_id, line = _epoch(xcoms, failed) if epoch else _act(xcoms, failed)
    if failure is None:
        return RunFacts(job, what, checkpoint_id, line)
    line = f"{line}: {failure.reason}: {failure.detail}"
    step = "; ".join(filter(None, (failure.step, _step_after(failure, xcoms) if epoch else "")))
    why = (failure.reason, failure.detail, step, failure.runbook)
    return RunFacts(job, what, checkpoint_id, line, *why)


def _landing(job: str, failed: bool, xcoms: XComs) -> RunFacts:
    if failed:
        failure = _failure((LAND,), xcoms)
        line = f"not every source was landed: {failure.reason}: {failure.detail}"
        return RunFacts(job, "landing", None, line, failure.reason, failure.detail, failure.step, failure.runbook)
    landed = xcoms.get((LAND, RETURN_VALUE))
    facts = landed if isinstance(landed, Mapping) else {}
    why = facts.get("not_due")
    return RunFacts(
        job, "landing", None, f"nothing was landed: {why}" if why else f"landed {facts.get('rows', 0):,} rows"
    )


def _failure(task_ids: tuple[str, ...], xcoms: XComs) -> Failure:
    """Return the failure of the task that failed. That of `abort_checkpoint` comes last, because it repeats another."""
    for task_id in task_ids:
        value = xcoms.get((task_id, FAILURE_KEY))
        if value is not None:
            return Failure.from_xcom(value, task_id)
    return Failure.from_xcom(None, None)


def _step_after(failure: Failure, xcoms: XComs) -> str:
    """Return the further step that the abort of the epoch requires; "" if there is none."""
    value = xcoms.get((tasks.ABORT, FAILURE_KEY))
    aborted = None if value is None else Failure.from_xcom(value, tasks.ABORT)
    return "" if aborted is None or aborted == failure else aborted.step


def _epoch(xcoms: XComs, failed: bool) -> tuple[str, int | None, str]:
    triggered = xcoms.get((tasks.TRIGGER, RETURN_VALUE))
    if isinstance(triggered, Mapping) and "nothing_to_do" in triggered:
        return "epoch", None, f"nothing to do: {str(triggered['nothing_to_do']).replace('_', ' ')}"
    if not isinstance(triggered, Mapping) or "checkpoint_id" not in triggered:
        return "epoch", None, "no checkpoint" if failed else "nothing to do: another session held the job"
    checkpoint_id = triggered["checkpoint_id"]
    if not isinstance(checkpoint_id, int):
        raise StateCorrupt(f"XCom of {tasks.TRIGGER}: checkpoint_id: expected an integer, got {checkpoint_id!r}")
    if failed:
        committed = any((task, FAILURE_KEY) in xcoms for task in (tasks.NOTIFY, tasks.SUBSUME))
        return "epoch", checkpoint_id, f"checkpoint {checkpoint_id} {'is completed, but' if committed else 'failed'}"
    ran = decode_xcom(tasks.RUN, RanEpoch, xcoms.get((tasks.RUN, RETURN_VALUE)))
    return "epoch", checkpoint_id, f"checkpoint {checkpoint_id}: {ran.figures}"


def _act(xcoms: XComs, failed: bool) -> tuple[str, int | None, str]:
    value = xcoms.get((PLAN, RETURN_VALUE))
    if value is None:
        return "plan", None, "nothing was planned"
    plan = from_json(ShownPlan, value, f"plan in the XCom of {PLAN}")
    about = plan.checkpoint_id or None
    if failed:
        return plan.what, about, plan.subject
    done = xcoms.get((ACT, RETURN_VALUE))
    if done is None:
        answer = xcoms.get((APPROVAL, RETURN_VALUE))
        if isinstance(answer, Mapping) and REJECTED_BY in answer:
            return plan.what, about, f"{plan.subject}: rejected by {answer[REJECTED_BY]}"
        outcome = "nothing to do" if plan.idle else "only planned"
        return plan.what, about, f"{plan.subject}: {outcome}"
    result = ActResult.from_xcom(done, f"XCom of {ACT}")
    return plan.what, about, "; ".join((f"{plan.subject}: {result.outcome.replace('_', ' ')}", *result.text))
