"""Cases of `milepost test` that a test puts together from steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from milepost.spark.local.local_runner import LocalRunner
from milepost.testing.case_file import load_cases
from milepost.testing.case_run import CaseResult, run_case

Step = dict[str, Any]


def run_steps(job: Path, *steps: Step, recording: bool = False, **options: Any) -> CaseResult:
    """Run one case of these steps over the job of a spec, from a file next to it."""
    file = job.parent / "case.yaml"
    document = {"milepost_test": 1, "job": job.name, **options, "cases": {"it": list(steps)}}
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return run_case(load_cases(file), "it", LocalRunner(), record=recording)
