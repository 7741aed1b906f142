"""The suite check finds a job's expectations in the installed Great Expectations, and runs nothing."""

from __future__ import annotations

from milepost.errors import CheckpointError
from milepost.jobspec.load.load import LoadedJob
from milepost.quality.gate import resolve_suite


def suite_problems(job: LoadedJob) -> dict[str, str | None]:
    """Return, for each sink with expectations, why they cannot be judged; None when they can.

    Takes the import time of Great Expectations, seconds, once per process; nothing when no sink has expectations.
    """
    faults: dict[str, str | None] = {}
    for suite in job.spec.quality:
        try:
            resolve_suite(suite)
        except CheckpointError as error:
            faults[suite.sink] = error.full_message()
        else:
            faults[suite.sink] = None
    return faults
