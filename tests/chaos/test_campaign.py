"""The campaign of random jobs, faults and commands (`make chaos`), short: in a process of its own, as it is run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from milepost_testkit.processes.processes import REPOSITORY


def run_campaign(*options: str) -> str:
    """Run a campaign; return its last line."""
    words = [sys.executable, "-m", "milepost_testkit.chaos.campaign", *options]
    done = subprocess.run(words, cwd=REPOSITORY, check=False, capture_output=True, text=True, timeout=1_500)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("length", ["1", pytest.param("4", marks=pytest.mark.deep)])
def test_a_random_job_equals_the_model_after_faults_kills_commands_and_changes(length: str) -> None:
    told = run_campaign("--seed", "3", "--jobs", "1", "--length", length, "--spark-every", "0")
    assert told.endswith("nothing was lost, nothing doubled")


@pytest.mark.deep
def test_random_jobs_equal_the_model_in_a_campaign_with_the_seed_of_this_run() -> None:
    told = run_campaign("--seed", os.environ["MILEPOST_SEED"], "--minutes", "1")
    assert told.endswith("nothing was lost, nothing doubled")


@pytest.mark.deep
def test_random_jobs_on_a_server_of_spark_and_on_a_cluster_equal_the_model() -> None:
    """Their workers and executors are killed, and the commands in whose processes the cluster's drivers run."""
    told = run_campaign("--seed", os.environ["MILEPOST_SEED"], "--jobs", "2", "--spark-every", "1", "--length", "3")
    assert "1 on Spark Connect, 1 on a cluster" in told and told.endswith("nothing was lost, nothing doubled")
