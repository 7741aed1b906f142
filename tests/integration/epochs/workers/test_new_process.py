"""A job goes on in a process of its own, with a Spark of its own, which neither loses nor tells anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pytest

from milepost.jobmaster.job.context import JobContext
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.kill_chain import without_quality
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.runners.planes import epochs_in_process

DEAD_PROXY = "http://127.0.0.1:9"


@dataclass
class Run:
    """One epoch of a job, logged in full.

    Attributes:
        output: of the command. commands: the command lines of every process of the machine while it ran.
        logged: files of Spark's event log, with the plans.
    """

    job: FlightsJob
    exit_code: int
    output: str
    commands: set[str]
    logged: list[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The second epoch of a job: behind a dead proxy, with another HOME and no cache, under a path with a space."""
    folder = tmp_path_factory.mktemp("new process")
    events = folder / "events"
    events.mkdir()
    log = f'spark.eventLog.enabled: "true", spark.eventLog.compress: "false", spark.eventLog.dir: "{events.as_uri()}"'
    edit = {
        without_quality(): "",
        "max_files: 4": "max_files: 1",
        "parallelism: 2}": f"parallelism: 2, conf: {{{log}}}}}",
    }
    job = FlightsJob.create(folder / "a job in Zürich, 航班", edit)
    job.land(range(1, 3))
    with epochs_in_process():
        job.run()
    proxies = {name: DEAD_PROXY for one in ("http_proxy", "https_proxy", "all_proxy") for name in (one, one.upper())}
    places = {"HOME": str(folder / "home"), "MILEPOST_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-m", "milepost", "run", str(job.spec_path), "-v", "--json"]
    commands: set[str] = set()
    with (folder / "out").open("w+") as out:
        environment = {**os.environ, **proxies, "NO_PROXY": "", "no_proxy": "", **places}
        process = psutil.Popen(command, cwd=REPOSITORY, stdout=out, stderr=subprocess.STDOUT, env=environment)
        while process.poll() is None:
            for child in psutil.process_iter(["cmdline"]):
                commands.add(" ".join(child.info["cmdline"] or ()))
            psutil.wait_procs([process], timeout=0.2)
    logged = [path.read_text(errors="replace") for path in events.rglob("*") if path.is_file()]
    yield Run(job, process.returncode, (folder / "out").read_text(), commands, logged)


def test_a_new_process_goes_on_behind_a_dead_proxy_under_a_path_with_a_space(run: Run) -> None:
    """State comes from the store alone."""
    assert run.exit_code == 0, run.output
    documents = [json.loads(line) for line in run.output.splitlines() if line.startswith("{")]
    assert [document["data"]["checkpoint_id"] for document in documents] == [2]
    run.job.assert_tables_equal_the_oracle()


def test_spark_and_the_machine_do_not_expose_the_secret_of_the_key_hash(run: Run) -> None:
    """Output, Spark's event log with the plans, and every process's command line."""
    secret = JobContext(run.job.load()).head().state.key_hash_secret
    assert secret is not None and any("pyspark" in one for one in run.commands)
    assert any("MapInArrow" in one for one in run.logged)
    assert not any(secret in one for one in (*run.commands, *run.logged, run.output))
