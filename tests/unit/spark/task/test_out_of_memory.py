"""A task that runs out of memory says what it was at by the names of the spec, and what to set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milepost.errors import EnvironmentUnusable
from milepost.jobmaster import Session
from milepost.spark.task import epoch_tasks
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.side_by_side_runner import SideBySideRunner


@pytest.mark.parametrize(
    ("does", "who"),
    [("run_source", "rows"), ("run_subtask", "latest")],
)
def test_a_task_without_memory_names_its_source_or_its_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, who: str
) -> None:
    def full(*_: Any) -> Iterator[Any]:
        raise MemoryError("malloc of size 4096 failed")
        yield

    monkeypatch.setattr(epoch_tasks, does, full)
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    with wording.raises(EnvironmentUnusable) as unusable:
        job.master.epochs.run(Session.cli(), SideBySideRunner())
    assert unusable.value.message.count(who) == 1 and "spark.executor.pyspark.memory" in unusable.value.hint
