"""The facts of a run that has ended, from what its tasks left in XComs: one line of it, and why it failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from milepost.airflow.operate.act import Done
from milepost.airflow.operate.tasks import ACT, APPROVAL, PLAN, RECONCILE
from milepost.airflow.operators import tasks
from milepost.airflow.operators.base import RETURN_VALUE
from milepost.airflow.operators.handed_on import EpochTry, left_by
from milepost.airflow.operators.job_specs import EPOCH_SUFFIX, OPERATE_SUFFIX
from milepost.airflow.operators.planned import REJECTED_BY, ShownPlan
from milepost.airflow.task_output.outcome import FAILURE_KEY, Failure
from milepost.codec.records import from_json
from milepost.errors import StateCorrupt

Left = Mapping[tuple[str, str], Any]
"""What the tasks of a run left, by task id and key."""

_EPOCH_TASKS = (*reversed(tasks.BEFORE_THE_COMMIT_POINT), tasks.NOTIFY, tasks.SUBSUME, tasks.ABORT)
_OPERATE_TASKS = (PLAN, APPROVAL, ACT, RECONCILE)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is told of a run.

    Attributes:
        job: its name. what: the act of the form; "epoch". checkpoint_id: that it was about; None: none.
        line: all of it in one line. reason: name of a `CheckpointFailureReason`, detail and step: why it failed, and
            what to do; runbook: where more is said. "" for what nobody knows, or of a run that did not fail.
    """

    job: str
    what: str
    checkpoint_id: int | None
    line: str
    reason: str = ""
    detail: str = ""
    step: str = ""
    runbook: str = ""


def keys_of(dag_id: str) -> list[tuple[str, str]]:
    """Return what to read of a run's XComs, by task id and key; [] of a DAG that is none of a job's."""
    if dag_id.endswith(EPOCH_SUFFIX):
        return _keys((tasks.TRIGGER, tasks.RUN), _EPOCH_TASKS)
    return _keys((PLAN, APPROVAL, ACT), _OPERATE_TASKS) if dag_id.endswith(OPERATE_SUFFIX) else []


def _keys(returning: tuple[str, ...], failing: tuple[str, ...]) -> list[tuple[str, str]]:
    return [*((task, RETURN_VALUE) for task in returning), *((task, FAILURE_KEY) for task in failing)]


def facts_of(dag_id: str, failed: bool, left: Left) -> RunFacts:
    """Return the facts of a run of a job's DAG.

    Args:
        left: at least what `keys_of` names, as far as it is there.
    Raises: StateCorrupt: a task left something else.
    """
    epoch = dag_id.endswith(EPOCH_SUFFIX)
    job = dag_id.removesuffix(EPOCH_SUFFIX if epoch else OPERATE_SUFFIX)
    failure = _failure(_EPOCH_TASKS if epoch else _OPERATE_TASKS, left) if failed else None
    what, checkpoint_id, line = _epoch(left, failed) if epoch else _act(left, failed)
    if failure is None:
        return RunFacts(job, what, checkpoint_id, line)
    line = f"{line}: {failure.reason}: {failure.detail}"
    step = "; ".join(filter(None, (failure.step, _step_after(failure, left) if epoch else "")))
    why = (failure.reason, failure.detail, step, failure.runbook)
    return RunFacts(job, what, checkpoint_id, line, *why)


def _failure(task_ids: tuple[str, ...], left: Left) -> Failure:
    """Return why a run failed: what the task that failed left; the one that aborts only repeats it."""
    for task_id in task_ids:
        value = left.get((task_id, FAILURE_KEY))
        if value is not None:
            return Failure.from_xcom(value, task_id)
    return Failure.from_xcom(None, None)


def _step_after(failure: Failure, left: Left) -> str:
    """Return what giving up the epoch has left to do; "": nothing more than the failure itself."""
    value = left.get((tasks.ABORT, FAILURE_KEY))
    aborted = None if value is None else Failure.from_xcom(value, tasks.ABORT)
    return "" if aborted is None or aborted == failure else aborted.step


def _epoch(left: Left, failed: bool) -> tuple[str, int | None, str]:
    triggered = left.get((tasks.TRIGGER, RETURN_VALUE))
    if isinstance(triggered, Mapping) and "nothing_to_do" in triggered:
        return "epoch", None, f"nothing to do: {str(triggered['nothing_to_do']).replace('_', ' ')}"
    if not isinstance(triggered, Mapping) or "checkpoint_id" not in triggered:
        return "epoch", None, "no checkpoint" if failed else "nothing to do: another session held the job"
    checkpoint_id = triggered["checkpoint_id"]
    if not isinstance(checkpoint_id, int):
        raise StateCorrupt(f"what {tasks.TRIGGER} left: checkpoint_id: expected an integer, got {checkpoint_id!r}")
    if failed:
        committed = any((task, FAILURE_KEY) in left for task in (tasks.NOTIFY, tasks.SUBSUME))
        return "epoch", checkpoint_id, f"checkpoint {checkpoint_id} {'is completed, but' if committed else 'failed'}"
    ran = left_by(tasks.RUN, EpochTry, left.get((tasks.RUN, RETURN_VALUE)))
    return "epoch", checkpoint_id, f"checkpoint {checkpoint_id}: {ran.figures}"


def _act(left: Left, failed: bool) -> tuple[str, int | None, str]:
    value = left.get((PLAN, RETURN_VALUE))
    if value is None:
        return "plan", None, "nothing was planned"
    plan = from_json(ShownPlan, value, f"plan that {PLAN} left")
    about = plan.checkpoint_id or None
    if failed:
        return plan.what, about, plan.subject
    done = left.get((ACT, RETURN_VALUE))
    if done is None:
        answer = left.get((APPROVAL, RETURN_VALUE))
        if isinstance(answer, Mapping) and REJECTED_BY in answer:
            return plan.what, about, f"{plan.subject}: rejected by {answer[REJECTED_BY]}"
        outcome = "nothing to do" if plan.idle else "only planned"
        return plan.what, about, f"{plan.subject}: {outcome}"
    said = from_json(Done, done, f"what {ACT} left")
    return plan.what, about, "; ".join((f"{plan.subject}: {said.outcome.replace('_', ' ')}", *said.text))
