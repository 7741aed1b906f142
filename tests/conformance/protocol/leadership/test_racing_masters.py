"""Whole epochs of concurrent processes, aborted and taken over at any moment: every row is published once.

Every process has the real job master, state and sinks; only the exchange is not Spark's.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from multiprocessing.queues import Queue
from pathlib import Path

import pytest

from milepost.errors import Busy, CommitConflict, Fenced, JobNotRunnable
from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost.protocol.manifest.invariants import faults
from milepost.protocol.manifest.timelines.incarnation import dirty_results
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

pytestmark = pytest.mark.long

TIMES = {"run": 1, "take over": 1, "restart": 1, "abort": 10}
"""Calls per process, per two objects; a process that mostly finds nothing pending calls more often."""

WAIT_S = 240.0
TYPED = (Busy, Fenced, CommitConflict, JobNotRunnable)
"""Errors that a rival may get. Any other error fails the test."""


def attempt(master: JobMaster, what: str) -> str:
    """One command; returns how it ended."""
    try:
        if what == "abort":
            return str(master.lifecycle.abort_running().outcome)
        if what == "restart":
            return f"{master.savepoints.cancel().outcome}, {master.restores.start().outcome}"
        return str(master.epochs.run(Session.cli(), SparklessRunner(), take_over=what == "take over").status)
    except TYPED as error:
        return type(error).__name__
    except Exception as error:  # noqa: BLE001 - the test fails with it, at once
        return f"unexpected {error!r}"


def rival(spec: str, what: str, times: int, told: Queue[list[str]]) -> None:
    """Run in a process of its own: the same command again and again."""
    told.put([attempt(JobMaster(load_job(spec)), what) for _ in range(times)])


@pytest.mark.parametrize("landed", [6, pytest.param(12, marks=pytest.mark.deep)])
def test_racing_masters_publish_every_row_once_and_leave_nothing_behind(landed: int, tmp_path: Path) -> None:
    """I3, I9, I14: two runs that wait, one that takes over, one that aborts, and one that ends and starts the job."""
    job = SparklessJob.create(tmp_path)
    for number in range(landed):
        job.land(f"{number:02d}.csv", f"k,v\n1,a\n{100 + number},b\n")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    spec = str(tmp_path / "config" / "small.yaml")
    kinds = ["run", "run", "take over", "abort", "restart"]
    times = {what: landed // 2 * each for what, each in TIMES.items()}
    processes_of = multiprocessing.get_context("spawn")
    told: Queue[list[str]] = processes_of.Queue()
    rivals = [processes_of.Process(target=rival, args=(spec, what, times[what], told), daemon=True) for what in kinds]
    for one in rivals:
        one.start()
    answers = Counter(answer for _ in rivals for answer in told.get(timeout=WAIT_S))
    for one in rivals:
        one.join(WAIT_S)
        assert one.exitcode == 0
    assert not [answer for answer in answers if answer.startswith("unexpected")], answers
    assert sum(answers.values()) == sum(times[what] for what in kinds)

    if job.context.head().state.status.value != "running":
        job.master.restores.start()
    while job.master.epochs.run(Session.cli(), SparklessRunner(), take_over=True).status != "empty":
        continue
    table = {row["k"]: row["rows"] for row in job.master.reports.read("table").to_pylist()}
    assert table == {1: landed} | {100 + number: 1 for number in range(landed)}, answers
    state = job.context.head().state
    assert faults(state) == [] and dirty_results(state.results) == () and state.unconfirmed() == ()
    completed = [one for one in job.master.reports.list_checkpoints() if one.status in ("completed", "subsumed")]
    assert len(completed) == landed, "one object an epoch, and each of them once"
    epochs = [one.epoch for one in completed]
    assert epochs == list(range(landed, 0, -1)), "one lineage"
