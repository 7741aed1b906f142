"""The tasks of one DAG run, executed here in place of Airflow: its XComs, its form, its skips."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk import DAG, Asset
from airflow.sdk.execution_time.context import set_current_context

from milepost.airflow.compat import AirflowSkipException, DownstreamTasksSkipped, TaskParked
from milepost.airflow.operators import tasks
from milepost.airflow.operators.base import RETURN_VALUE
from milepost.airflow.task_output.outcome import FAILURE_KEY
from milepost_testkit.runners.sparkless_runner import SparklessRunner


class TaskInstance:
    """As much of Airflow's task instance as the tasks of one run share: what each pushed."""

    def __init__(self, task_id: str, pushed: dict[tuple[str, str], Any], try_number: int = 1) -> None:
        self.task_id, self._pushed, self.try_number = task_id, pushed, try_number
        self.id = f"{task_id}/{try_number}"
        self.bundle_instance = SimpleNamespace(name="jobs-repository", version="731c834")

    def xcom_push(self, key: str, value: Any) -> None:
        self._pushed[(self.task_id, key)] = value

    def xcom_pull(self, task_ids: str, key: str = RETURN_VALUE) -> Any:
        return self._pushed.get((task_ids, key))


class OutletEvents:
    """The asset events that a task emits, for any outlet."""

    def __init__(self) -> None:
        self.emitted: list[tuple[str, dict[str, Any]]] = []

    def __getitem__(self, alias: object) -> OutletEvents:
        return self

    def add(self, asset: Asset, extra: dict[str, Any]) -> None:
        self.emitted.append((asset.uri, extra))


def run_epoch_tasks(spec: Path, run: SimpleNamespace, lake: str) -> None:
    """Execute the operators of an epoch with one sink, `table`, each with a job master of its own; Spark is left out.

    Args:
        run: the DAG run. lake: asset URI of the sink.
    """
    pushed: dict[tuple[str, str], Any] = {}

    def execute(kind: type[tasks.EpochOperator], task_id: str, **more: Any) -> Any:
        context: Any = {"ti": TaskInstance(task_id, pushed), "dag_run": run, "params": {}}
        context["outlet_events"] = OutletEvents()
        with set_current_context(context):
            pushed[task_id, RETURN_VALUE] = kind(task_id=task_id, spec_path=str(spec), **more).execute(context)
        return pushed[task_id, RETURN_VALUE]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("milepost.spark.driver.runner.SparkEpochRunner", SparklessRunner)
        execute(tasks.TriggerCheckpointOperator, tasks.TRIGGER)
        execute(tasks.RunEpochOperator, tasks.RUN)
        execute(tasks.ValidateOperator, tasks.VALIDATE)
        (committed,) = execute(tasks.CompleteCheckpointOperator, tasks.COMPLETE)
        execute(tasks.NotifyCompleteOperator, tasks.NOTIFY, sink_assets={"table": lake}, committed=committed)
        execute(tasks.SubsumeOperator, tasks.SUBSUME)


def trigger_vetoed(
    spec: str, run: SimpleNamespace, veto: dict[str, str], pushed: dict[tuple[str, str], Any]
) -> Callable[[TaskInstance], None]:
    """Trigger an epoch, and leave what a gate's veto leaves. Returns what executes the task that aborts it.

    Args:
        run: the DAG run. pushed: receives what the tasks left in XComs.
    """
    context: Any = {"ti": TaskInstance(tasks.TRIGGER, pushed), "dag_run": run, "params": {}}
    trigger = tasks.TriggerCheckpointOperator(task_id=tasks.TRIGGER, spec_path=spec)
    pushed[tasks.TRIGGER, RETURN_VALUE] = trigger.execute(context)
    pushed[tasks.VALIDATE, FAILURE_KEY] = veto
    abort = tasks.AbortCheckpointOperator(task_id=tasks.ABORT, spec_path=spec)
    return lambda instance: abort.execute({**context, "ti": instance})


class InProcessRun:
    """One run of a DAG, whose tasks are executed in this process.

    Attributes:
        form: the DAG's presets, with the given values over them. skipped: tasks that must no longer run.
        skip_reasons: by the id of each task that skipped itself, its message.
        shown: what the approval shows to a person: subject and body.
    """

    def __init__(self, dag: DAG, run_id: str = "manual__1", **form: Any) -> None:
        self.dag, self.form = dag, {**dag.params.dump(), **form}
        self.pushed: dict[tuple[str, str], Any] = {}
        self.skipped: set[str] = set()
        self.skip_reasons: dict[str, str] = {}
        self.shown: dict[str, Any] = {}
        self._parked: dict[str, Any] = {}
        self.outlets = OutletEvents()
        self.run = SimpleNamespace(dag_id=dag.dag_id, run_id=run_id, run_type="manual", logical_date=None, conf=form)
        self.run.triggering_user_name = "bea"

    def ask(self) -> None:
        """Show the plan to a person: the approval's task parks, and Airflow keeps what it parked with."""
        with pytest.MonkeyPatch.context() as supervisor, pytest.raises(TaskParked) as parked:
            supervisor.setattr(hitl, "upsert_hitl_detail", lambda **detail: self.shown.update(detail))
            self.dag.get_task("approve").execute(self._context(TaskInstance("approve", self.pushed)))
        self._parked = parked.value.kwargs or {}

    def answer(self, name: str = "ann") -> None:
        """Approve, as the person who was asked."""
        event = {
            "chosen_options": ["Approve"],
            "params_input": {},
            "responded_at": datetime(2026, 7, 1, tzinfo=UTC),
            "responded_by_user": {"id": name, "name": name},
        }
        ti = TaskInstance("approve", self.pushed)
        task: Any = self.dag.get_task("approve")
        ti.xcom_push(RETURN_VALUE, task.execute_complete(self._context(ti), event, **self._parked))

    def approve(self, name: str = "ann") -> None:
        """A person is shown the plan, and says yes."""
        self.ask()
        self.answer(name)

    def _context(self, ti: TaskInstance) -> Any:
        return {
            "ti": ti,
            "task_instance": ti,
            "dag_run": self.run,
            "params": self.form,
            "outlet_events": self.outlets,
        }

    def execute(self, task_id: str, *, try_number: int = 1, **mapped: Any) -> Any:
        """Execute one task. Returns its result. Raises what tells Airflow to fail or retry it.

        Args:
            mapped: what one instance of a mapped task gets.
        """
        assert task_id not in self.skipped
        ti = TaskInstance(task_id, self.pushed, try_number)
        task = self.dag.get_task(task_id)
        try:
            result = (task.unmap(mapped) if task.is_mapped else task).execute(self._context(ti))
        except DownstreamTasksSkipped as skip:
            self.skipped |= {str(one) for one in skip.tasks}
            return ti.xcom_pull(task_id)
        except AirflowSkipException as skip:
            self.skipped.add(task_id)
            self.skip_reasons[task_id] = str(skip)
            return None
        ti.xcom_push(RETURN_VALUE, result)
        return result
