"""The tasks of one DAG run, executed here in place of Airflow: its XComs, its form, its skips."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from airflow.sdk import DAG, Asset
from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped

from pipeline.orchestration.base import RETURN_VALUE


class TaskInstance:
    """As much of Airflow's task instance as the tasks of one run share: what each pushed."""

    def __init__(self, task_id: str, pushed: dict[tuple[str, str], Any], try_number: int = 1) -> None:
        self.task_id, self._pushed, self.try_number = task_id, pushed, try_number

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


class FormDagRun:
    """One run of a DAG with a form.

    Attributes:
        form: the DAG's presets, with the given values over them. skipped: tasks that must not run any more.
    """

    def __init__(self, dag: DAG, run_id: str = "manual__1", **form: Any) -> None:
        self.dag, self.form = dag, {**dag.params.dump(), **form}
        self.pushed: dict[tuple[str, str], Any] = {}
        self.skipped: set[str] = set()
        self.outlets = OutletEvents()
        self.run = SimpleNamespace(dag_id=dag.dag_id, run_id=run_id, run_type="manual", logical_date=None)

    def approve(self, name: str = "ann") -> None:
        """A person says yes: what the approval's task leaves then."""
        self.pushed[("approve", RETURN_VALUE)] = {"chosen_options": ["Approve"], "responded_by_user": {"name": name}}

    def execute(self, task_id: str, *, try_number: int = 1) -> Any:
        """Execute one task. Returns its result. Raises what tells Airflow to fail or retry it."""
        assert task_id not in self.skipped
        ti = TaskInstance(task_id, self.pushed, try_number)
        context: Any = {"ti": ti, "dag_run": self.run, "params": self.form, "outlet_events": self.outlets}
        try:
            result = self.dag.get_task(task_id).execute(context)
        except DownstreamTasksSkipped as skip:
            self.skipped |= {str(task) for task in skip.tasks}
            return ti.xcom_pull(task_id)
        except AirflowSkipException:
            self.skipped.add(task_id)
            return None
        ti.xcom_push(RETURN_VALUE, result)
        return result
