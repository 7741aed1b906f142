"""The campaign of random jobs, faults and commands (`make chaos`), short: in a process of its own, as it is run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.harness.servers.processes.processes import REPOSITORY


def hold(*options: str) -> str:
    """Run a campaign; return its last line."""
    words = [sys.executable, "-m", "tests.harness.chaos.campaign", *options]
    done = subprocess.run(words, cwd=REPOSITORY, check=False, capture_output=True, text=True, timeout=1_500)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_a_random_job_equals_the_model_after_faults_kills_commands_and_changes() -> None:
    told = hold("--seed", "3", "--jobs", "1", "--length", "4", "--spark-every", "0")
    assert told.endswith("nothing was lost, nothing doubled")


@pytest.mark.referee
def test_random_jobs_equal_the_model_in_a_campaign_with_the_seed_of_this_run() -> None:
    told = hold("--seed", os.environ["MILEPOST_SEED"], "--minutes", "2.5")
    assert told.endswith("nothing was lost, nothing doubled")
