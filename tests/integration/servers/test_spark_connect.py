"""Epochs on a Spark Connect server and on a cluster: same tables, and a server that outlives its clients (I3, I13)."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from milepost.epoch.answers import EpochAnswers
from milepost.epoch.plan import EpochPlan
from milepost.errors import QualityGateFailed
from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost.language.spark_remote import parse_remote
from milepost.sinks.staging.table_staging import TableStaging
from milepost.spark.driver import compat
from milepost.spark.driver.engines import connect
from milepost.spark.driver.runner import SparkEpochRunner
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import Outcome, assert_clear_error, milepost, milepost_process
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.recovering_job import quality_section
from milepost_testkit.processes.processes import stop_tree, wait_until
from milepost_testkit.servers.connect_server import ConnectServer
from scripts.stack import SPARK

LOCAL = 'spark: {master: "local[2]", remote: "${env:MILEPOST_SPARK_REMOTE:-}", parallelism: 2}'
CLUSTER = (
    'spark: {master: "local-cluster[1,2,1024]", parallelism: 1, '
    'conf: {spark.executor.extraJavaOptions: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}}'
)
"""A master, a worker and an executor in processes of their own; the last one's JVM lives for one epoch."""

SPEC = """\
name: held
storage: ../store
sources:
  rows: {{format: csv, path: ../landing/*.csv, settle: 0s, schema: {{k: int64}}, limits_per_epoch: {{max_files: 1}}}}
operators:
  - {{uid: one, kind: sql, inputs: [rows], sql: "SELECT k, 10 / k AS share FROM rows"}}
  - {{uid: held, kind: process, inputs: [one], key: [k], function: "{function}"}}
sinks:
  - {{name: held, input: held, format: parquet, path: ../lake/held, mode: append}}
checkpointing: {{timeout: {timeout}, tolerable_failures: 9}}
spark: {{remote: "{remote}", parallelism: 2, conf: {conf}}}
"""
FUNCTION = """\
import os
import time
from pathlib import Path

FORM = "{form}"


class Held:
    state = {{"seen": "int64"}}
    output = {{"k": "int64", "form": "string"}}

    def on_rows(self, key, rows, state, ctx):
        if Path("{folder}/die").exists():
            os._exit(3)
        if Path("{folder}/hold").exists():
            Path("{folder}/held-{{}}".format(os.getpid())).touch()
            while not Path("{folder}/never").exists():
                time.sleep(0.05)
        yield {{"k": key, "form": FORM}}
"""


class HeldJob:
    """A job whose process function blocks while a file `hold` exists, and dies while `die` exists."""

    def __init__(self, folder: Path, server: ConnectServer, **values: str) -> None:
        self.folder, self.server = folder, server
        for name in ("config", "landing"):
            (folder / name).mkdir()
        self.spec = folder / "config" / "held.yaml"
        self.write(**values)
        self.module(folder / "config" / "held_ops.py", "old")

    def write(self, **values: str) -> None:
        defaults = {"function": "held_ops:Held", "timeout": "10m", "remote": self.server.remote, "conf": "{}"}
        self.spec.write_text(SPEC.format(**(defaults | values)))

    def module(self, file: Path, form: str) -> None:
        file.write_text(FUNCTION.format(folder=self.folder, form=form))

    def land(self, *keys: int) -> None:
        for key in keys:
            (self.folder / "landing" / f"{key}.csv").write_text(f"k\n{key}\n")

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """The next function that runs blocks, and has begun when the block ends."""
        (self.folder / "hold").touch()
        yield
        wait_until(self.holders, seconds=240, what="the process function")
        (self.folder / "hold").unlink()

    def start(self) -> psutil.Popen:
        """A run in a process of its own, once its function holds a slot of the server."""
        with self.holding():
            return psutil.Popen(
                [sys.executable, "-m", "milepost", "run", str(self.spec)],
                env={**os.environ, **self.server.environment},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def holders(self) -> list[Path]:
        return list(self.folder.glob("held-*"))

    def rows(self) -> list[tuple[int, str]]:
        rows: list[dict[str, Any]] = json.loads(milepost("read", self.spec, "held", "--format", "json").stdout)
        return sorted((row["k"], row["form"]) for row in rows)


@pytest.fixture
def server(spark_connect: ConnectServer) -> ConnectServer:
    return spark_connect


@pytest.fixture(autouse=True)
def client(server: ConnectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may use the server."""
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", server.environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"])


def assert_ran(outcome: Outcome) -> None:
    assert outcome.exit_code == 0, outcome.stderr


@pytest.mark.deep
def test_a_job_goes_from_a_server_to_a_cluster_and_back(server: ConnectServer, tmp_path: Path) -> None:
    """State and positions do not depend on where the epoch's Spark is; every table equals DuckDB's."""
    job = FlightsJob.create(tmp_path / "job", {quality_section(): "", "max_files: 4": "max_files: 1"})
    here = job.spec_path.read_text()
    job.land(range(1, 4))
    job.edit(here, {LOCAL: f'spark: {{remote: "{server.remote}", parallelism: 2}}'})
    assert_ran(milepost("run", job.spec_path))
    job.edit(here, {LOCAL: CLUSTER})
    assert_ran(milepost_process("run", job.spec_path, environment={"SPARK_LOCAL_HOSTNAME": "localhost"}))
    job.edit(here, {LOCAL: f'spark: {{remote: "{server.remote}", parallelism: 1}}'})
    assert_ran(milepost("run", job.spec_path))
    assert len(job.epochs()) == 3
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
@pytest.mark.parametrize("since", [(4, 2), (99, 0)], ids=["checked", "unchecked before Spark 4.2"])
def test_a_new_run_interrupts_what_a_killed_client_left_on_the_server(
    since: tuple[int, int], server: ConnectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server's job outlives its client; held slots would block every later epoch."""
    monkeypatch.setattr(compat, "OPERATION_STATUSES", since)
    job = HeldJob(tmp_path, server)
    job.land(1, 2)
    running = job.start()
    stop_tree(running, kill=True)
    (worker,) = [int(path.name.removeprefix("held-")) for path in job.holders()]
    assert psutil.pid_exists(worker), "its Spark job lives on"
    job.land(3)
    assert_ran(milepost("run", job.spec, "--take-over"))
    wait_until(lambda: not psutil.pid_exists(worker), seconds=240, what="the end of the orphan's worker")
    assert_ran(milepost("run", job.spec, "--until-caught-up"))
    assert job.rows() == [(1, "old"), (2, "old"), (3, "old")]


@pytest.mark.deep
def test_an_installed_module_edited_between_two_epochs_runs_in_its_new_form(
    server: ConnectServer, tmp_path: Path
) -> None:
    """I13: the server's Python workers have imported the old form, and live on."""
    job = HeldJob(tmp_path, server, function="installed_ops:Held")
    for key, form in ((1, "old"), (2, "new")):
        job.module(server.modules / "installed_ops.py", form)
        job.land(key)
        assert_ran(milepost_process("run", job.spec, environment=server.environment))
    assert job.rows() == [(1, "old"), (2, "new")]


OF_SPARK = {r"\[DIVIDE_BY_ZERO\].*SQLSTATE: \d+": "[DIVIDE_BY_ZERO] {why}", r"\btask \d+ died": "task {task} died"}


def test_what_fails_on_the_server_is_refused_as_it_is_elsewhere(server: ConnectServer, tmp_path: Path) -> None:
    """A value that SQL cannot compute, a worker that dies, an epoch that takes too long; then as if never."""
    job = HeldJob(tmp_path, server)
    job.land(0)
    assert_clear_error(
        milepost("run", job.spec), 1, "one", "10 / `k`", "DIVIDE_BY_ZERO", golden="run", replace=OF_SPARK
    )
    (tmp_path / "landing" / "0.csv").write_text("k\n5\n")
    (tmp_path / "die").touch()
    died = milepost("run", job.spec)
    assert (died.exit_code, "Python worker exited unexpectedly" in died.stderr) == (1, True)
    assert "spark.executor.pyspark.memory" in died.stderr
    assert "0.csv" not in died.stderr, "its objects had been read"
    wording.matches("run", "\n".join(died.error), replace=OF_SPARK)
    (tmp_path / "die").unlink()
    (tmp_path / "hold").touch()
    job.write(timeout="3s")
    assert_clear_error(milepost("run", job.spec), 6, golden="run", replace={r"\bafter \d+ ms": "after {time} ms"})
    (tmp_path / "hold").unlink()
    job.write()
    assert_ran(milepost("run", job.spec))
    assert job.rows() == [(5, "old")]


GATE = """\
quality:
  - sink: held
    expectations:
      - {type: expect_column_values_to_be_between, column: k, max_value: 3}
      - {type: expect_column_values_to_be_unique, column: k}
"""


@pytest.mark.deep
def test_rows_are_judged_in_the_tasks_of_a_server(
    server: ConnectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.epoch.gate_shares.DRIVER_ROWS", 0)
    monkeypatch.setattr(TableStaging, "staged_table", None)
    job, runner = HeldJob(tmp_path, server), SparkEpochRunner()
    job.spec.write_text(job.spec.read_text() + GATE)
    job.land(1, 5)
    master = JobMaster(load_job(job.spec))
    assert master.epochs.run(Session.cli(), runner).quality == "passed"
    with wording.raises(QualityGateFailed):
        master.epochs.run(Session.cli(), runner)
    assert [refusal["rows"] for refusal in master.reports.show(2).veto["refusals"]] == [[{"k": 5}]]


class Planned(SparkEpochRunner):
    """Remembers what it ran last."""

    plan: EpochPlan

    def run(self, plan: EpochPlan) -> EpochAnswers:
        self.plan = plan
        return super().run(plan)


def test_a_session_that_the_server_has_closed_is_followed_by_the_next_in_line(
    server: ConnectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers close idle sessions, and never take the id again. However many: few questions lead to the next."""
    job, runner = HeldJob(tmp_path, server), Planned()
    sessions: list[Any] = []
    for key, conf in ((1, "{spark.sql.shuffle.partitions: 7}"), (2, "{}"), (3, "{}")):
        job.write(conf=conf)
        job.land(key)
        assert JobMaster(load_job(job.spec)).epochs.run(Session.cli(), runner).status == "completed"
        engine = runner._engine
        assert isinstance(engine, connect.RemoteEngine) and engine.slots == 2
        sessions.append((engine.session.session_id, engine.session.conf.get("spark.sql.shuffle.partitions")))
        if key == 2:
            engine.session.client.release_session()
    (first, seven), (second, taken_back), (third, _) = sessions
    assert first == second != third
    assert (seven, taken_back) == ("7", "200"), "what the spec no longer says is taken back"
    assert len(job.rows()) == 3
    assert [first, third] == [connect.session_id(runner.plan, number) for number in (0, 1)]

    asked: list[str] = []
    is_closed = connect._is_closed
    monkeypatch.setattr(connect, "_is_closed", lambda *to: asked.append(to[-1]) or is_closed(*to))
    remote = parse_remote(server.remote)
    for number in range(1, 6):
        asked.clear()
        session = connect._session_of(remote, runner.plan)
        assert session.session_id == connect.session_id(runner.plan, number)
        assert len(asked) <= 2 * number.bit_length()
        again = connect._session_of(remote, runner.plan)
        assert again.session_id == session.session_id, "to look for it has opened nothing and closed nothing"
        session.client.release_session()


def test_doctor_says_what_answers(server: ConnectServer, tmp_path: Path) -> None:
    checks = milepost("doctor", HeldJob(tmp_path, server).spec).stdout
    assert f"Spark 4.3.0 at {server.remote}, local[2,3]" in checks


@pytest.mark.parametrize(
    ("values", "token", "mentions"),
    [
        ({"remote": "sc://localhost:1"}, None, ("sc://localhost:1", "refused")),
        ({}, "wrong", ("SPARK_CONNECT_AUTHENTICATE_TOKEN",)),
        ({}, "", ("SPARK_CONNECT_AUTHENTICATE_TOKEN",)),
        ({"conf": "{spark.executor.memory: 3g}"}, None, ("spark.executor.memory",)),
    ],
    ids=["no server", "wrong token", "no token", "setting"],
)
def test_a_server_that_cannot_be_used_is_refused_in_a_line(
    server: ConnectServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    values: dict[str, str],
    token: str | None,
    mentions: tuple[str, ...],
) -> None:
    job = HeldJob(tmp_path, server, **values)
    job.land(1)
    if token is not None:
        monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", token)
    outcome = milepost("run", job.spec)
    assert_clear_error(outcome, 8, *mentions, golden="run")
    assert len(outcome.error) == 3, "one line, its page of the runbook, and what to do"
    assert "wrong" not in outcome.stderr


def test_the_token_is_in_no_command_line_log_or_file_of_others(server: ConnectServer) -> None:
    """Other users of the machine are not trusted (DESIGN 9); the server answers on loopback alone."""
    token = server.environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"]
    assert len(token) >= 32
    for process in server.processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # one that has just ended shows nothing any more
            assert token not in " ".join(process.cmdline())
    holding = []
    for path in server.folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # the server deletes what it has done with
            if path.is_file() and token.encode() in path.read_bytes():
                holding.append((path.name, path.stat().st_mode & 0o777))
    assert holding == [("spark-token", 0o600)]
    listening = [one for one in server.processes[0].net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    assert listening and {one.laddr.ip.removeprefix("::ffff:") for one in listening} == {"127.0.0.1"}


@pytest.mark.deep
def test_a_server_that_dies_fails_the_epoch_and_the_next_one_runs_on_its_successor(
    server: ConnectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the epoch is visible, and it does not count against the job: its machine was unusable."""
    monkeypatch.setattr(connect, "_RETRIES", 1)
    job = HeldJob(tmp_path, server)
    job.land(1)
    with ThreadPoolExecutor() as pool:
        with job.holding():
            running = pool.submit(milepost, "run", job.spec)
        server.stack.stop(SPARK)
        assert_clear_error(
            running.result(300),
            8,
            "sc://localhost:",
            "milepost runbook spark-lost",
            golden="run",
        )
    assert milepost("status", job.spec, "--json").document()["job_status"] == "running"
    server.start()
    job.write()
    assert_ran(milepost("run", job.spec))
    assert job.rows() == [(1, "old")]
