"""A user's Airflow: stock, with plugins and DAGs of their own, plus the wheel and three lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psutil
import pytest

from milepost_testkit.processes.processes import REPOSITORY, free_ports, stop_tree, wait_until
from milepost_testkit.repository.bare_environment import BareEnvironment, bare_environment
from milepost_testkit.repository.distribution import build, copy_sources
from scripts.airflow_rest import AirflowRest
from tests.integration.installed.test_constraints import constraint

THREE_LINES = """\
from milepost.airflow.dags import load_jobs

load_jobs(globals(), "{jobs}")
"""
TEAM_DAG = """
from airflow.sdk import dag, task

@dag(schedule=None)
def theirs():
    @task
    def nothing(): ...
    nothing()

theirs()
"""
TEAM_PLUGIN = """
from airflow.plugins_manager import AirflowPlugin

class TeamPlugin(AirflowPlugin):
    name = "team"
"""
BOOT_S = 240
RUN_S = 300


class StrangersAirflow:
    """`airflow standalone` of an environment, with folders of the team's own, all below `work/team`."""

    def __init__(self, environment: BareEnvironment) -> None:
        self.environment = environment
        self.team = environment.work / "team"
        self.home = environment.work / "airflow"
        self.jobs = environment.work / "elsewhere" / "jobs"
        for folder in (self.team / "dags", self.team / "plugins", self.home, self.jobs):
            folder.mkdir(parents=True)
        port, *ports = free_ports(4)
        self.url = f"http://127.0.0.1:{port}"
        self.settings = {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.team / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.team / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(ports[0]),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(ports[1]),
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_PORT": str(ports[2]),
        }

    @contextmanager
    def running(self) -> Iterator[AirflowRest]:
        with (self.environment.folder / "airflow.log").open("w") as log:
            process = psutil.Popen(
                [self.environment.program("airflow"), "standalone"],
                cwd=self.environment.work, env=self.environment.environ(self.settings), stdout=log, stderr=log,
            )  # fmt: skip
            try:
                passwords = self.home / "simple_auth_manager_passwords.json.generated"
                wait_until(passwords.exists, seconds=BOOT_S, what="the password", process=process)
                rest = AirflowRest(self.url, "admin", json.loads(passwords.read_text())["admin"])
                wait_until(
                    lambda: rest.is_healthy("scheduler", "dag_processor", "triggerer"),
                    seconds=BOOT_S, what="Airflow", process=process,
                )  # fmt: skip
                self.processes = [process, *process.children(recursive=True)]
                yield rest
            finally:
                stop_tree(process)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareEnvironment]:
    folder = tmp_path_factory.mktemp("distribution")
    wheel = build("build_wheel", copy_sources(folder / "sources"), folder)
    with bare_environment() as bare:
        bare.pip("install", "--constraint", constraint("newest"), f"{wheel}[airflow,spark,quality]")
        yield bare


@pytest.mark.deep
def test_an_epoch_runs_and_its_page_is_there_in_an_airflow_that_knows_the_wheel_alone(
    environment: BareEnvironment,
) -> None:
    airflow = StrangersAirflow(environment)
    made = environment.milepost("init", "orders")
    assert made.returncode == 0, made.stderr
    for file in (environment.work / "config").iterdir():
        file.rename(airflow.jobs / file.name)
    (airflow.team / "dags" / "jobs.py").write_text(THREE_LINES.format(jobs=airflow.jobs))
    (airflow.team / "dags" / "theirs.py").write_text(TEAM_DAG)
    (airflow.team / "plugins" / "team.py").write_text(TEAM_PLUGIN)
    with airflow.running() as rest:
        wait_until(lambda: {"orders__epoch", "theirs"} <= set(rest.dags()), seconds=BOOT_S, what="the DAGs")
        assert rest.import_errors() == []
        rest.set_paused("orders__epoch", False)
        run_id = rest.trigger("orders__epoch")
        state = rest.wait("orders__epoch", run_id, timeout_s=RUN_S)
        assert state == "success", rest.log("orders__epoch", run_id, "run_epoch")[-4000:]
        page = httpx.get(
            f"{airflow.url}/milepost/jobs/orders__epoch/checkpoints",
            headers=rest.authorization(),
            trust_env=False,
            timeout=60,
        )
        assert (page.status_code, "<h1>orders</h1>" in page.text) == (200, True)
        plugins = {one["name"]: one["source"] for one in rest.request("GET", "/plugins")["plugins"]}
        assert {"team", "milepost_checkpoints"} <= set(plugins)
        read = environment.milepost("read", airflow.jobs / "orders.yaml", "totals", "--json")
        assert {row["city"] for row in json.loads(read.stdout)["data"]["rows"]} == {"Bergen", "Porto", "Quito"}
        for process in airflow.processes:
            assert str(REPOSITORY) not in f"{process.environ()} {process.cmdline()} {process.cwd()}"
    assert str(REPOSITORY) not in environment.python("import sys; print(sys.path)")
