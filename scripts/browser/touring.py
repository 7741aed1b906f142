"""Start the process that drives a browser, and read its report."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict

from scripts.bootstrap import ROOT, clean_environ
from scripts.browser.environment import BROWSER
from scripts.browser.visits import Report, Tour

LONGEST_S = 1_500


def toured(tour: Tour) -> Report:
    """Run a tour and return its report. Raises RuntimeError: the browser could not be driven. It quotes stderr."""
    if not BROWSER.is_built():
        raise RuntimeError(f"{BROWSER.folder} is not built: python -m scripts.browser")
    command = [str(BROWSER.python), "-m", "scripts.browser.driving"]
    environ = clean_environ() | {"PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environ,
        input=json.dumps(asdict(tour)),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the browser could not be driven: {done.stderr[-4000:]}")
    return Report.of(json.loads(done.stdout))
