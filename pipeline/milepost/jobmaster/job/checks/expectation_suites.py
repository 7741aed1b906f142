"""Check that the installed Great Expectations has a job's expectations. Runs none of them."""

from __future__ import annotations

from milepost.errors import CheckpointError
from milepost.jobspec.load import LoadedJob
from milepost.quality import resolve_suite


def suite_problems(job: LoadedJob) -> dict[str, str | None]:
    """Return, per sink with expectations, why they cannot be evaluated; None if they can.

    The first call imports Great Expectations, which takes seconds, unless no sink has expectations.
    """
    problems: dict[str, str | None] = {}
    for suite in job.spec.quality:
        try:
            resolve_suite(suite)
        except CheckpointError as error:
            problems[suite.sink] = error.full_message()
        else:
            problems[suite.sink] = None
    return problems
