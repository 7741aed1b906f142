"""Fifty jobs in one storage: whether one of them, and what a person asks of it, takes more with the others there."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from bench.rounds import Say
from bench.studies.months.small_job import SmallJob, counted_openers
from milepost.state.cache.cache_folder import NODE_CACHE_VARIABLE
from milepost.storage.object_cache import OBJECT_CACHE
from milepost_testkit.stores.counted_stores import Requests

if TYPE_CHECKING:
    from milepost.api import JobMaster

JOBS = 50
EPOCHS, OF_OTHERS = 96, 12
"""Of the one job, each time: a multiple of those after which a state is written whole; of each other one."""


def measure_neighbours(
    folder: Path, say: Say, *, jobs: int = JOBS, epochs: int = EPOCHS, of_others: int = OF_OTHERS
) -> dict[str, Any]:
    """Run one job's epochs and ask for what a person asks, alone and with the others there. Returns the record."""
    shutil.rmtree(folder, ignore_errors=True)
    requests = Requests()
    with patch.dict(os.environ, {NODE_CACHE_VARIABLE: str(folder / "cache")}), counted_openers(requests):
        one = _job(0, folder, requests)
        one.run(epochs)  # young epochs ask for less
        alone = _epochs(one, epochs) | _acts(one, requests)
        say(f"neighbours: alone {alone}")
        for number in range(1, jobs):
            other = _job(number, folder, requests)
            other.run(of_others)
        beside = _acts(one, requests) | _epochs(one, epochs)  # as old as it was, alone: `fsck` looks at all it has
        say(f"neighbours: beside {jobs - 1} others {beside}")
    shutil.rmtree(folder)
    return {"jobs": jobs, "alone": alone, "beside": beside}


def _job(number: int, folder: Path, requests: Requests) -> SmallJob:
    return SmallJob("parquet", folder / f"job-{number:02d}", requests, storage=folder / "storage")


def _epochs(job: SmallJob, count: int) -> dict[str, dict[str, float]]:
    point = job.run(count)
    return {"an epoch": {"requests": point["mean_requests"], "cpu_s": point["mean_cpu_s"]}}


def _acts(job: SmallJob, requests: Requests) -> dict[str, dict[str, float]]:
    """Measure what a person asks, each by a job master that has nothing in memory or cache, as on a new machine."""
    from milepost.jobmaster import jobs_in_storage_of

    acts: dict[str, Callable[[JobMaster], object]] = {
        "status": lambda master: master.reports.status(),
        "list": lambda master: master.reports.list_checkpoints(limit=51),
        "fsck": lambda master: master.reports.fsck(),
        "gc": lambda master: master.collect_garbage(),
        "jobs": lambda master: jobs_in_storage_of(master.context.job),
    }
    return {name: _counted(partial(act, job.new_master()), requests) for name, act in acts.items()}


def _counted(act: Callable[[], object], requests: Requests) -> dict[str, float]:
    shutil.rmtree(os.environ[NODE_CACHE_VARIABLE], ignore_errors=True)
    OBJECT_CACHE.clear()
    requests.clear()
    used_s = time.process_time()
    act()
    return {"requests": len(requests.calls), "cpu_s": time.process_time() - used_s}
