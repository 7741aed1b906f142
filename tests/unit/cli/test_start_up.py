"""What a command waits for before it does anything: the modules it loads, and its requests that stand in line."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from milepost.jobmaster import Session
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.proxies.delaying_proxy import Answered, DelayingProxy, longest_line
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.s3_servers import Ministack

EPOCHS = 6
_TRIES = 3
_LONG_ENOUGH_S = 0.2
"""Long enough for concurrent requests to be observed as such."""

_LOADED = """
import json, os, sys
from pathlib import Path
import boto3
import milepost.cli.main
from milepost.__main__ import main

folder, *commands = sys.argv[1:]
heavy = ("pyarrow", "numpy", "pandas", "sqlglot", "pyspark", "great_expectations", "duckdb")
for number, command in enumerate(commands):
    if os.fork() == 0:
        sys.argv[1:] = json.loads(command)
        try:
            main()
        finally:
            loaded = [name for name in heavy if name in sys.modules]
            Path(folder, str(number)).write_text(json.dumps(loaded))
    if os.waitpid(-1, 0)[1]:
        sys.exit(1)
"""
"""Each command in a fork of a process that has loaded the command line alone."""

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

TYPICAL = ("status JOB", "rollback JOB --to 5 --dry-run", "run JOB")
"""One that reads, one that plans and one that runs an epoch."""


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
            assert master.epochs.run(Session.cli(), runner).status == "completed"
    return job


def run(grown: SparklessJob, words: str, endpoint_url: str, server: Ministack) -> None:
    """Run a command in a process of its own."""
    spec = str(grown.folder / "config" / "small.yaml")
    start(server, endpoint_url, "-m", "milepost", *(spec if word == "JOB" else word for word in words.split()))


def start(server: Ministack, endpoint_url: str, *python: str) -> None:
    """Run Python to its end, with the settings of the store in its environment."""
    environment = {
        **os.environ,
        **server.environment(),
        "STORE_ENDPOINT": endpoint_url,
        "PYTHONPATH": str(REPOSITORY / "pipeline"),
    }
    ran = subprocess.run(
        [sys.executable, *python], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def loaded(grown: SparklessJob, ministack: Ministack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What is loaded of what is heavy when each command of `LOADS` ends."""
    folder = tmp_path_factory.mktemp("loaded")
    spec = str(grown.folder / "config" / "small.yaml")
    commands = [json.dumps([spec if word == "JOB" else word for word in words.split()]) for words in LOADS]
    start(ministack, ministack.endpoint_url, "-c", _LOADED, str(folder), *commands)
    return {words: json.loads((folder / str(number)).read_text()) for number, words in enumerate(LOADS)}


@pytest.mark.long
@pytest.mark.parametrize("words", LOADS)
def test_a_command_that_reads_loads_what_it_needs_alone(words: str, loaded: dict[str, list[str]]) -> None:
    assert loaded[words] == LOADS[words]


@pytest.mark.long
@pytest.mark.parametrize(
    "words", [pytest.param(words, marks=() if words in TYPICAL else pytest.mark.deep) for words in IN_LINE]
)
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
            run(grown, words, proxy.endpoint_url, ministack)
        if longest_line(proxy.answered) <= IN_LINE[words]:
            return
        told = "\n".join(f"{one.arrived_s:.2f} {one.answered_s:.2f} {one.method} {one.path}" for one in proxy.answered)
    pytest.fail(f"more than {IN_LINE[words]} in line, {_TRIES} times; the last one's requests:\n{told}")


def test_a_line_is_of_requests_that_waited_for_one_another() -> None:
    side_by_side = [Answered("GET", "/", 0.0, 1.0), Answered("GET", "/", 0.1, 1.1), Answered("GET", "/", 1.05, 2.0)]
    assert longest_line(side_by_side) == 2
    assert longest_line([*side_by_side, Answered("GET", "/", 2.5, 3.0)]) == 3
    assert longest_line([]) == 0
