"""A small job after months of epochs: an epoch asks for no more, and the log is as easy to open as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.studies.months.small_job import small_job

HUNDRED = 128
"""Epochs that are looked at together: a multiple of those after which a state is written whole."""
HUNDREDS = 12
BYTES_PER_TRANSITION = 250
HEAD_FOUND_BY = 2
"""A listing of the log's newest entries, and the newest of them."""
SLACK = 1.03
"""Of a mean: how many epochs of a hundred compact the log, or join files, is not the same for each hundred."""


@pytest.mark.deep
def test_an_epoch_after_months_sends_the_same_requests_and_the_log_has_no_more_per_transition(
    tmp_path: Path,
) -> None:
    """Nothing of an epoch depends on how many there were; a process that knows nothing reads one entry of the log."""
    points = list[dict[str, Any]]()
    with small_job("parquet", tmp_path / "months", shortened=False) as job:
        for _ in range(HUNDREDS):
            points.append(job.run(HUNDRED) | job.stored())
        job.check()
    early, late = points[1], points[-1]
    assert abs(late["requests"] - early["requests"]) <= 1, "of the median epoch"
    assert late["mean_requests"] <= SLACK * early["mean_requests"], (early["kinds"], late["kinds"])
    assert late["head_found_by"] == early["head_found_by"] == HEAD_FOUND_BY
    transitions = late["log_entries"] - early["log_entries"]
    assert transitions > (HUNDREDS - 2) * HUNDRED
    assert (late["log_bytes"] - early["log_bytes"]) / transitions <= BYTES_PER_TRANSITION
    assert late["largest_entry"] <= 1.1 * early["largest_entry"]
    assert late["cache_bytes"] <= SLACK * early["cache_bytes"]
