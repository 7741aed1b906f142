"""A run of one of a job's DAGs with a form: triggered with its values, and answered, by REST."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from packaging.version import Version

from milepost.airflow.compat import states_of_waiting_tasks
from milepost_testkit.airflow.airflow_instance import AirflowInstance
from scripts.airflow_home import LOGIN
from scripts.airflow_rest import AirflowRest

PARSED = "Worker startup parse complete"
"""What a task logs when it has parsed its DAG file. Airflow 3.1 and 3.2 only log that they begin to."""
if Version(version("apache-airflow")) < Version("3.3"):
    PARSED = "Filling up the DagBag"


class FormRun:
    """One run.

    Args:
        dag_id: `<job>__operate`. form: what the form sends; what is refused raises httpx.HTTPStatusError.
        login: the user who triggers the run and answers its requests.
    """

    def __init__(self, airflow: AirflowInstance, dag_id: str, *, login: str = LOGIN, **form: Any) -> None:
        self.airflow = airflow
        self.dag_id = dag_id
        self.person = airflow.rest_of(login)
        self.run_id = self.person.trigger(dag_id, form)

    def wait(self) -> str:
        return self.airflow.wait(self.dag_id, self.run_id)

    def states(self) -> dict[str, str | None]:
        return self.airflow.rest.states(self.dag_id, self.run_id)

    def log(self, task_id: str) -> str:
        """Of the newest try: a loaded machine may lose one, and Airflow then begins another."""
        return self.airflow.rest.log(self.dag_id, self.run_id, task_id, self.tries(task_id))

    def note(self) -> str:
        return str(self.airflow.rest.run(self.dag_id, self.run_id)["note"])

    def tries(self, task_id: str) -> int:
        found = self.airflow.rest.tasks(self.dag_id, self.run_id)
        return max(task["try_number"] for task in found if task["task_id"] == task_id)

    def executions(self, task_id: str) -> int:
        """How many tries got as far as the task's own code.

        On a loaded machine Airflow begins another try for one whose process it lost before that.
        """
        logs = self.airflow.stack.folder / "airflow" / "logs"
        tries = logs.glob(f"dag_id={self.dag_id}/run_id={self.run_id}/task_id={task_id}/attempt=*.log")
        return sum(PARSED in log.read_text(errors="replace") for log in tries)

    def asked(self, task_id: str = "approve") -> dict[str, Any]:
        """Wait until the run waits for a person. Returns what that person is shown: subject, body, options."""
        waiting = states_of_waiting_tasks()
        self.airflow.until(lambda: self.states().get(task_id) in waiting, f"{self.dag_id} asks for approval")
        # An answer before the scheduler has heard that the task's process is gone looks to it like a killed task.
        self.airflow.until(lambda: self._parked(task_id), "the scheduler has seen the task park")
        return self.shown_to(self.person, task_id)

    def shown_to(self, person: AirflowRest, task_id: str = "approve") -> dict[str, Any]:
        """Return what a person is shown of a request that waits. Raises httpx.HTTPStatusError: refused."""
        return dict(person.request("GET", self._request(task_id)))

    def answer(self, option: str, task_id: str = "approve", *, person: AirflowRest | None = None) -> None:
        """Answer as the button under Required Actions does. Raises httpx.HTTPStatusError: refused."""
        answered = {"chosen_options": [option], "params_input": {}}
        (person or self.person).request("PATCH", self._request(task_id), json=answered)

    def edit_plan(self, plan_task: str = "plan", **changed: Any) -> None:
        """Change a plan in transit, as any user who may edit XComs can."""
        entry = f"/dags/{self.dag_id}/dagRuns/{self.run_id}/taskInstances/{plan_task}/xcomEntries/return_value"
        plan = self.airflow.rest.request("GET", f"{entry}?deserialize=true")["value"]
        self.airflow.rest.request("PATCH", entry, json={"value": plan | changed, "map_index": -1})

    def _parked(self, task_id: str) -> bool:
        event = f"dag_id={self.dag_id!r}, task_id={task_id!r}, run_id={self.run_id!r}"
        lines = (self.airflow.stack.folder / "logs" / "scheduler.log").read_text().splitlines()
        return any("Received executor event" in line and event in line for line in lines)

    def _request(self, task_id: str) -> str:
        return f"/dags/{self.dag_id}/dagRuns/{self.run_id}/taskInstances/{task_id}/-1/hitlDetails"
