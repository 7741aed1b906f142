"""A test that never ends: it fails by name, and the rest of the run goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from milepost_testkit.processes.processes import REPOSITORY

pytestmark = pytest.mark.deep

WAITS = """
import threading

def test_passes():
    pass

def test_waits_for_ever():
    threading.Event().wait()
"""
PASSES = """
def test_follows():
    pass
"""


def test_a_test_beyond_its_limit_fails_by_name_with_where_it_waits_and_the_next_one_runs(tmp_path: Path) -> None:
    """Also one that is the last of its file, and a next one that is the only one left."""
    (tmp_path / "test_a.py").write_text(WAITS)
    (tmp_path / "test_b.py").write_text(PASSES)
    command = [sys.executable, "-m", "pytest", "-c", str(REPOSITORY / "pyproject.toml"), "-p", "no:cacheprovider"]
    shared = ["-p", "scripts.suite.schedule", "-n", "1", "--dist", "loadscope", "--no-loadscope-reorder"]
    limited = ["--rootdir", str(tmp_path), "-o", "faulthandler_timeout=1", str(tmp_path)]
    run = subprocess.run(
        [*command, *shared, *limited], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "crashed while running 'test_a.py::test_waits_for_ever'" in run.stdout
    assert f'File "{tmp_path / "test_a.py"}", line 8 in test_waits_for_ever' in run.stderr
    assert "1 failed, 2 passed" in run.stdout
