"""How often an epoch asks the stores: on S3 each answer takes tens of milliseconds, and is paid for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.jobmaster import Session
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage import OBJECT_CACHE
from milepost.storage.requests import StoreRequests
from milepost.tables.records.table_heads import HEADS
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.counted_stores import count_requests

EMPTY = 6
NORMAL = {"trigger": 6, "run": 10, "complete": 2, "after": 21}
"""One source, one sink, one level, a checkpoint subsumed; of the driver: tasks have stores of their own.

Six of them read the clock, which a bucket that has just answered is not asked for. `run` reads what the task of the
first level measured, and writes what the epoch did to the table; `notify` writes the next mark that the table carries,
and what goes on beside it replaces the entries of the log, two requests each, that nothing needs any more: three.
`subsume` asks where else a migration has a table of the sink. Four store the row of figures: it lists the day and reads
its object while other requests wait, writes the object with one row more, and deletes the former one.
"""


@pytest.fixture(autouse=True)
def bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a directory the newest version is found by name, of a bucket by one listing: the latter is paid for."""
    monkeypatch.setattr(StoreConfig, "is_local", False)
    for module in ("jobmaster.job.measurements", "jobmaster.run.attempt", "spark.task.epoch_tasks"):
        monkeypatch.setattr(f"milepost.{module}.own_put", lambda store: StoreRequests())  # a directory is asked by none


def three_files(tmp_path: Path) -> tuple[SparklessJob, SparklessRunner]:
    """A job with three files to read, whose limit is one file per epoch."""
    job = SparklessJob.create(tmp_path / "job")
    for name in "abc":
        job.land(f"{name}.csv")
    return job, SparklessRunner()


def by_step(requests: Callable[[str], None]) -> Callable[[str], None]:
    """The notifications of each phase of an epoch; those of `run`, and those after the commit, count as one step."""
    one_step = dict.fromkeys(("begin", "session", "data plane", "gate", "prepare", "write"), "run")
    one_step |= {"notify": "after", "subsume": "after"}
    return lambda phase: requests(one_step.get(phase.split(":")[0], phase))


@pytest.mark.deep
def test_an_empty_epoch_of_a_running_process_sends_few_requests_and_starts_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request verifies that the head is the same, and one lists each source concurrently, without a data plane."""
    job, runner = three_files(tmp_path)
    requests = count_requests(monkeypatch)
    master = job.master
    while master.epochs.run(Session.cli(), runner).status == "completed":
        requests.clear()
    assert len(requests.calls) <= EMPTY, f"the first one after an epoch that read\n{requests.told()}"
    requests.clear()
    assert master.epochs.run(Session.cli(), runner).status == "empty"
    assert sorted(requests.asked) == [("list", ""), ("list", "manifest/")], requests.told()
    assert len(runner.plans) == 3


@pytest.mark.deep
def test_an_empty_epoch_of_a_fresh_process_sends_few_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a scheduler's task, once the stores are known to keep the rules: it also reads the head, its metadata, and
    what the source has consumed, which is at most 8 runs."""
    job, runner = three_files(tmp_path)
    while job.master.epochs.run(Session.cli(), runner).status == "completed":
        pass
    OBJECT_CACHE.clear()
    requests = count_requests(monkeypatch)
    assert job.master.epochs.run(Session.cli(), runner).status == "empty"
    consumed = [key for _, key in requests.asked if "/consumed/" in key]
    assert len(consumed) == 3
    assert len(requests.asked) - len(consumed) <= EMPTY, requests.told()


def test_an_epoch_sends_no_more_requests_than_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Per step, in a process that has run one before. More than this needs a reason and a new figure here."""
    job, runner = three_files(tmp_path)
    requests = count_requests(monkeypatch)
    master = job.master
    for _ in range(3):
        requests.clear()
        assert master.epochs.run(Session.cli(), runner, progress=by_step(requests)).status == "completed"
    assert requests.by_step.keys() == NORMAL.keys()
    assert all(asked <= NORMAL[step] for step, asked in requests.by_step.items()), requests.told()
    heads = [(step, key) for step, _, key in requests.calls if key.startswith(HEADS)]
    assert [step for step, key in heads if key != HEADS] == ["after"], "made; that of before is known"
    written = [key for _, operation, key in requests.calls if operation in ("put", "create")]
    read_back = [key for _, operation, key in requests.calls if operation == "get" and key in written]
    assert all(key.startswith("manifest/") for key in read_back), "of what it wrote, an epoch reads the head alone"


@pytest.mark.deep
def test_a_cached_head_is_replaced_when_another_session_writes(tmp_path: Path) -> None:
    """I1: a head that is kept in memory is one that the store's listing still calls the newest."""
    job, runner = three_files(tmp_path)
    one, other = job.master, job.master
    for master in (one, other, one):
        assert master.epochs.run(Session.cli(), runner).status == "completed"
    assert [plan.base for plan in runner.plans] == [0, 1, 2]
    assert one.epochs.run(Session.cli(), runner).status == other.epochs.run(Session.cli(), runner).status == "empty"
