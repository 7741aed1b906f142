"""`--share` draws deep tests by the run's seed: over the seeds each of them has its turn."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

FOLDER = "tests/chaos"
ONE_FILE = f"{FOLDER}/test_cluster_faults.py"


def collected(*arguments: str, seed: int = 5) -> set[str]:
    """Return the ids of the tests that a run would have."""
    pytest_ = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    environment = {**os.environ, "MILEPOST_SEED": str(seed)}
    done = subprocess.run([*pytest_, *arguments], env=environment, capture_output=True, text=True, check=True)
    return {line for line in done.stdout.splitlines() if line.startswith(FOLDER)}


def test_a_share_of_the_deep_tests_is_the_seed_s_wherever_it_is_drawn_and_leaves_out_no_other_test() -> None:
    every, deep = collected(FOLDER), collected("-m", "deep", FOLDER)
    left = collected("--share=0.3", FOLDER)
    drawn = left & deep
    assert left - drawn == every - deep != set()
    assert len(deep) * 0.1 < len(drawn) < len(deep) * 0.6
    assert collected("-m", "deep", "--share=0.3", ONE_FILE) == {one for one in drawn if one.startswith(ONE_FILE)}
    assert collected("-m", "deep", "--share=0.3", FOLDER, seed=6) not in (drawn, deep, set())
