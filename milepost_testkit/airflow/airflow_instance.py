"""One real Airflow for the end-to-end tests: its own processes, home and database, from the demo's own stack code.

The specs it sees are files in its `config` folder; a test adds its own job and waits until the scheduler knows it.
Waiting is always for a state that Airflow reports, never for time to pass.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
from packaging.version import Version

from milepost_testkit.airflow.e2e_job import CARRIERS, ON_THE_SERVER, E2eJob
from milepost_testkit.processes.processes import stop_tree, working_below
from scripts import processes
from scripts.airflow_home import LOGIN, Settings
from scripts.airflow_rest import AirflowRest
from scripts.processes import PYTHON_PATH
from scripts.stack import Stack

RUN_S = 420.0
STATE_S = 420.0
LOG_TAIL = 6000
"""Characters of a failed task's log that are printed."""

PARSE_AGAIN_S = 6.0
"""Airflow drops a request to parse a file that is being parsed, so the request is repeated after this time."""

ROLES = ("viewer", "user", "op", "admin")
"""The roles of Airflow's simple auth manager. Each is also the login of a user who has it."""

SETTINGS: Settings = {
    "core": {
        # A loaded machine needs longer for what is quick on its own: to parse the file, and to end after the last word.
        "dagbag_import_timeout": 240,
        "task_success_overtime": 240,
        "simple_auth_manager_users": ",".join(f"{role}:{role}" for role in ROLES),
    },
    "scheduler": {
        # A lost task is found quickly, but not one whose machine stalls for a while; the demo keeps Airflow's 300 s.
        "task_instance_heartbeat_timeout": 20,
        "task_instance_heartbeat_timeout_detection_interval": 2,
        # A scheduler that was held up for longer takes itself for dead, and starts its own running tasks once more.
        "scheduler_health_check_threshold": 12,
        "orphaned_tasks_check_interval": 5,
    },
    "workers": {"min_heartbeat_interval": 2, "max_failed_heartbeats": 20},
    # A DAG file is parsed again when a test asks for it, not all the time: two cores have other work.
    "dag_processor": {"refresh_interval": 5, "min_file_process_interval": 3600, "dag_file_processor_timeout": 300},
}

SERVICES = ("api-server", "scheduler", "dag-processor")
if Version(version("apache-airflow")) < Version("3.3"):
    SERVICES += ("triggerer",)  # approvals wait there

STEPS = "steps"
"""As a job's pool: each of its tasks asks for a slot of a pool of its own, which `step_pool` names."""

POLICY = f"""
def task_policy(task):
    if task.pool == {STEPS!r}:
        task.pool = {STEPS!r} + "-" + task.task_id
"""


def step_pool(task_id: str) -> str:
    return f"{STEPS}-{task_id}"


def until(
    condition: Callable[[], Any], what: str, timeout_s: float = STATE_S, *, check: Callable[[], None] = lambda: None
) -> Any:
    """Wait until a condition holds. Returns its value.

    Args:
        check: called before each further try; what it raises ends the wait.
    Raises: TimeoutError.
    """
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:.0f} s: {what}")
        check()
        time.sleep(0.5)
    return found


class AirflowInstance:
    """A running Airflow and the jobs that tests gave it.

    Attributes:
        config: the specs of the clone's DAG file. team: the DAG files of a team that has no clone.
    """

    def __init__(
        self,
        folder: Path,
        *,
        services: tuple[str, ...] = SERVICES,
        settings: Settings = SETTINGS,
        environ: Mapping[str, str] | None = None,
        may_end: bool = False,
    ) -> None:
        """Args:
        may_end: whether its processes may end by themselves, because the test starts them again.
        """
        self.folder, self._may_end = folder, may_end
        self.config = folder / "config"
        self.config.mkdir(parents=True)
        self.team = folder / "team"
        self.team.mkdir()
        self._rest: dict[str, AirflowRest] = {}
        self.lineage_config = folder / "openlineage.yml"
        self.stack = Stack(
            folder / "stack",
            config=self.config,
            services=services,
            settings={**settings, "dag_processor": {**settings["dag_processor"], **self._bundles()}},
            # This checkout's code, wherever the environment was made for. Lineage: once a test has written that file.
            environ={"PYTHONPATH": PYTHON_PATH, "OPENLINEAGE_CONFIG": str(self.lineage_config), **(environ or {})},
            say=lambda text: None,
        )

    def _bundles(self) -> dict[str, object]:
        """The setting of two folders of DAG files: the clone's, and one of a team."""
        local = {"classpath": "airflow.dag_processing.bundles.local.LocalDagBundle"}
        clone = {"name": "dags-folder", **local, "kwargs": {}}
        team = {"name": "team", **local, "kwargs": {"path": str(self.team)}}
        return {"dag_bundle_config_list": json.dumps([clone, team])}

    def start(self) -> None:
        """Start with one job that never runs: its DAG is the handle by which a parse can be requested."""
        (self.stack.home / "config").mkdir(parents=True)
        (self.stack.home / "config" / "airflow_local_settings.py").write_text(POLICY)
        (self.config / "idle.yaml").write_text(self.spec("idle"))
        self.stack.start_spark()
        self.stack.start_airflow()
        self.stack.wait_for_spark()
        self.until(self.rest.dags, "the first parse of the DAG file")

    def stop(self) -> None:
        """End all processes that were started, and their orphans, without waiting for their last writes."""
        for started in self.stack.started.values():
            if (process := started.process()) is not None:
                stop_tree(process, kill=True)
        self.stack.stop()
        left = working_below(self.folder)
        assert not left, f"still at work: {left}"

    def _fields(self, name: str) -> dict[str, Any]:
        folder = self.folder / "jobs" / name
        places = {"storage": folder / "state", "landing": folder / "landing", "lake": folder / "lake"}
        settings = {"retained": 10, "tolerable": 0, "retries": 2, "pool": "default_pool", "spark": ON_THE_SERVER}
        return {"name": name, **places, **settings}

    def spec(self, name: str) -> str:
        """Return the text of a spec with the defaults of `_fields`."""
        return CARRIERS.format(**self._fields(name))

    def write_job(self, name: str, *, spec: str = CARRIERS, more: str = "", **values: Any) -> E2eJob:
        """Write a job's spec. Before the start: the first parse of the DAG file finds it.

        Args:
            spec: a template; its fields get the defaults of `_fields`, `values` over them.
            more: further sections of the spec.
        """
        folder = self.folder / "jobs" / name
        (folder / "landing").mkdir(parents=True)
        return E2eJob(self, name, folder, spec.format(**(self._fields(name) | values)) + more)

    def add_job(self, name: str, *, unpaused: bool = True, **values: Any) -> E2eJob:
        """Write a job's spec, have the DAG file parsed again, and unpause its DAG.

        Args:
            unpaused: False: the DAG stays paused. values: of `write_job`.
        """
        job = self.write_job(name, **values)
        self.parsed_until(lambda: job.dag_id in self.rest.dags(), f"{job.dag_id} is listed")
        if unpaused:
            self.rest.set_paused(job.dag_id, False)
        return job

    def parsed_until(self, condition: Callable[[], bool], what: str) -> None:
        """Have the DAG file parsed now, and again and again, until a condition holds that follows from it."""
        asked = -math.inf

        def holds() -> bool:
            nonlocal asked
            if time.monotonic() - asked > PARSE_AGAIN_S:
                self.reparse()
                asked = time.monotonic()
            return condition()

        self.until(holds, what)

    def add_pool(self, name: str, slots: int) -> None:
        self.rest.create("/pools", {"name": name, "slots": slots})

    def set_slots(self, pool: str, slots: int) -> None:
        about = {"pool": pool, "slots": slots, "include_deferred": False}
        self.rest.request("PATCH", f"/pools/{pool}", params={"update_mask": "slots"}, json=about)

    def kill_scheduler(self) -> None:
        """kill -9 of the scheduler alone: its workers, their tasks and Spark live on."""
        killed = self.stack.started["scheduler"]
        process = killed.process()
        assert process is not None, "the scheduler is not running"
        self.set_aside("scheduler")
        process.kill()
        self.until(lambda: killed.process() is None, "the scheduler is gone")

    def set_aside(self, name: str) -> None:
        """Give the name of one that has ended to the next of its kind; what it left behind is stopped with the rest.

        A worker whose scheduler was killed waits for work for ever: it has no parent any more, and its title has taken
        the place of the mark that all of a stack carry. Its session, which the one that has ended began, tells.
        """
        ended = self.stack.started.pop(name)
        self.stack.started[f"{name} that was {ended.pid}"] = ended

    def start_scheduler(self) -> None:
        """Start a new scheduler on what the old one left, and wait until it says that it works."""
        self.stack.start_service("scheduler")
        self.stack.wait_for_airflow()

    def rest_of(self, login: str) -> AirflowRest:
        """Return the REST client of a user."""
        return self._rest.setdefault(login, self.stack.rest(login))

    @property
    def rest(self) -> AirflowRest:
        """The REST client of the admin."""
        return self.rest_of(LOGIN)

    def page(self, path: str, *, login: str | None = LOGIN) -> httpx.Response:
        """Request a page of Airflow's server, as a browser does; login None: without one."""
        headers = self.rest_of(login).authorization() if login else {}
        return httpx.get(self.stack.airflow_url + path, headers=headers, trust_env=False, timeout=60)

    def wait(self, dag_id: str, run_id: str) -> str:
        """Wait for a run's end. Why one failed is printed: a test that expected otherwise then shows it."""
        with self.explained(dag_id, run_id):
            state = self.rest.wait(dag_id, run_id, timeout_s=RUN_S, check=self.assert_running)
        if state == "failed":
            self.explain(dag_id, run_id)
        return state

    @contextmanager
    def explained(self, dag_id: str, run_id: str) -> Iterator[None]:
        """Print what is known of a run when what the block waits for does not come."""
        try:
            yield
        except TimeoutError:
            self.explain(dag_id, run_id)
            raise

    def explain(self, dag_id: str, run_id: str) -> None:
        """Print the facts of a run: the tries of its tasks, and the logs of failed and hanging ones."""
        tasks = self.rest.tasks(dag_id, run_id)
        for task in tasks:
            about = {name: task[name] for name in ("state", "try_number", "start_date", "end_date", "pid")}
            print(f"--- {dag_id} {run_id} {task['task_id']}: {about}")
            if task["state"] in ("failed", "running", "up_for_retry"):
                text = self.rest.log(dag_id, run_id, task["task_id"], task["try_number"], task["map_index"])
                print(text[-LOG_TAIL:])
        for log in ("scheduler", "api-server"):
            said = self.graver(log, dag_id, *(task["id"] for task in tasks))
            print(f"--- the {log}:\n" + "\n".join(said)[-LOG_TAIL:])

    def graver(self, log: str, *about: str) -> list[str]:
        """Warnings, errors and answers of 5xx of one of Airflow's processes that name one of these: a DAG, a try's id.

        A task that was given up, or that its supervisor has ended, tells nothing itself.
        """
        text = (self.stack.folder / "logs" / f"{log}.log").read_text(errors="replace")
        signs = ("error", "warn", "status_code=5")
        grave = [line for line in text.splitlines() if any(sign in line.lower() for sign in signs)]
        return [line for line in grave if any(name in line for name in about)]

    def reparse(self) -> None:
        """Ask for the DAG file to be parsed now."""
        token = next(iter(self.rest.dags().values()))["file_token"]
        self.rest.request("PUT", f"/parseDagFile/{token}")

    def asset_events(self, dag_id: str) -> list[dict[str, Any]]:
        """The asset events that a DAG's runs emitted, oldest first."""
        events = self.rest.request("GET", "/assets/events", params={"source_dag_id": dag_id, "limit": 100})[
            "asset_events"
        ]
        return sorted(events, key=lambda event: event["id"])

    def until(self, condition: Callable[[], Any], what: str, timeout_s: float = STATE_S) -> Any:
        """Wait for something that Airflow or the store shows. Returns it. Raises TimeoutError; as `assert_running`."""
        return until(condition, what, timeout_s, check=self.assert_running)

    def assert_running(self) -> None:
        """Raise StackError, with the end of its log, if one of Airflow's processes has ended by itself."""
        started = {} if self._may_end else self.stack.started  # without those that were set aside
        processes.assert_running((started[name] for name in self.stack.services if name in started), "Airflow")
