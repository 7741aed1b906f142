"""What a command waits for before it does anything: the modules it loads, and its requests that stand in line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from milepost.jobmaster.jobmaster import Session
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.proxies.delaying_proxy import Answered, DelayingProxy, longest_line
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.s3_servers import Ministack

EPOCHS = 6
_TRIES = 3
_LONG_ENOUGH_S = 0.2
"""So long that what is asked at once is also seen to be."""

_LOADED = """
import atexit, json, sys
from pathlib import Path
import milepost.cli.main as cli
from milepost.__main__ import main

kept, only_reads = Path(sys.argv.pop(1)), cli.only_reads
heavy = ("pyarrow", "numpy", "pandas", "sqlglot", "pyspark", "great_expectations", "duckdb")

def at_its_end(words):
    atexit.register(lambda: kept.write_text(json.dumps([name for name in heavy if name in sys.modules])))
    return only_reads(words)

cli.only_reads = at_its_end
main()
"""
ARROW = ["pyarrow", "numpy"]
LOADS = {
    "history JOB": [],
    "list JOB": [],
    "jobs JOB": [],
    "savepoint list JOB": [],
    "show JOB": ARROW,
    "status JOB": ARROW,
    "plot JOB": ARROW,
    "verify JOB": ARROW,
    "read JOB table": ARROW,
    "state JOB latest": ARROW,
    "diff JOB 5 6": ARROW,
    "rollback JOB --to 5 --dry-run": ARROW,
}
"""What is loaded of what is heavy. `pandas`, which Arrow would look for, is nowhere."""

IN_LINE = {
    "history JOB": 5,
    "list JOB": 8,
    "jobs JOB": 5,
    "savepoint list JOB": 2,
    "show JOB": 6,
    "status JOB": 6,
    "verify JOB 6": 9,
    "read JOB table": 6,
    "state JOB latest": 4,
    "rollback JOB --to 5 --dry-run": 15,
    "run JOB": 5,
}
"""Requests of which each waits for the one before; those of a job of six epochs with one source and one sink."""


@pytest.fixture(scope="module")
def grown(ministack: Ministack, tmp_path_factory: pytest.TempPathFactory) -> SparklessJob:
    """A job on S3 with epochs; where the server is, its spec takes from the environment."""
    root = f"s3://{ministack.new_bucket()}"
    job = SparklessJob.create(
        tmp_path_factory.mktemp("job"),
        {
            "storage: ../store\n": f"storage: {root}/store\nstore: {{endpoint_url: '${{env:STORE_ENDPOINT}}'}}\n",
            "../lake": f"{root}/lake",
            "../landing": f"{root}/landing",
            "last: 1": "last: 3",
        },
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (ministack.environment() | {"STORE_ENDPOINT": ministack.endpoint_url}).items():
            patch.setenv(name, value)
        master, runner = job.master, SparklessRunner()
        for number in range(EPOCHS):
            key = f"landing/{number}.csv"
            ministack.client.put_object(Bucket=root.removeprefix("s3://"), Key=key, Body=b"k,v\n1,a\n")
            assert master.run(Session.cli(), runner).status == "completed"
    return job


def run(grown: SparklessJob, words: str, endpoint_url: str, server: Ministack, *python: str) -> None:
    """Run a command in a process of its own."""
    spec = str(grown.folder / "config" / "small.yaml")
    environment = {
        **os.environ,
        **server.environment(),
        "STORE_ENDPOINT": endpoint_url,
        "PYTHONPATH": str(REPOSITORY / "pipeline"),
    }
    command = [sys.executable, *python, *(spec if word == "JOB" else word for word in words.split())]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("words", LOADS)
def test_a_command_that_reads_loads_what_it_needs_alone(
    words: str, grown: SparklessJob, ministack: Ministack, tmp_path: Path
) -> None:
    run(grown, words, ministack.endpoint_url, ministack, "-c", _LOADED, str(tmp_path / "loaded"))
    assert json.loads((tmp_path / "loaded").read_text()) == LOADS[words]


@pytest.mark.long
@pytest.mark.parametrize("words", IN_LINE)
def test_no_more_requests_of_a_command_stand_in_line_than_did(
    words: str, grown: SparklessJob, ministack: Ministack
) -> None:
    """More than this needs a reason and a new figure here: each costs the wait for an answer.

    On a busy machine a request that waited for none may arrive late, so answers take twice as long at each try; none
    arrives before what it waits for.
    """
    told = ""
    for attempt in range(_TRIES):
        with DelayingProxy(ministack.port, _LONG_ENOUGH_S * 2**attempt) as proxy:
            run(grown, words, proxy.endpoint_url, ministack, "-m", "milepost")
        if longest_line(proxy.answered) <= IN_LINE[words]:
            return
        told = "\n".join(f"{one.arrived_s:.2f} {one.answered_s:.2f} {one.method} {one.path}" for one in proxy.answered)
    pytest.fail(f"more than {IN_LINE[words]} in line, {_TRIES} times; the last one's requests:\n{told}")


def test_a_line_is_of_requests_that_waited_for_one_another() -> None:
    side_by_side = [Answered("GET", "/", 0.0, 1.0), Answered("GET", "/", 0.1, 1.1), Answered("GET", "/", 1.05, 2.0)]
    assert longest_line(side_by_side) == 2
    assert longest_line([*side_by_side, Answered("GET", "/", 2.5, 3.0)]) == 3
    assert longest_line([]) == 0
