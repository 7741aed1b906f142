"""The log is filtered by kind of event, table, checkpoint and text, a bounded part at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.jobmaster import EventKind, LogFilter
from milepost.jobmaster.reports.history import log_page
from milepost.protocol.records.layout import manifest_key
from milepost_testkit.jobs.rollbacks import decided
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """A job with a rollback and a savepoint; not to be changed: `job` is a copy of it."""
    job = CountedJob.with_epochs(tmp_path_factory.mktemp("log") / "job", 3)
    job.rollback(2, decision=decided("the prices were <b>wrong</b>"))
    job.run(1)
    job.master.savepoints.create("before-june")
    return job


@pytest.fixture
def job(old: CountedJob, tmp_path: Path) -> CountedJob:
    return old.copy_to(tmp_path / "job")


def whats(job: CountedJob, selected: LogFilter, limit: int = 100) -> list[str]:
    return [str(event["what"]) for event in job.master.reports.log_page(selected, limit).events]


@pytest.mark.deep
def test_without_a_filter_the_page_is_the_history(job: CountedJob) -> None:
    page = job.master.reports.log_page(LogFilter(), 100)
    assert [*page.events] == job.master.reports.history() and page.following is None


def test_every_entry_has_one_kind_and_each_kind_its_entries(job: CountedJob) -> None:
    every = job.master.reports.history()
    by_kind = {kind: job.master.reports.log_page(LogFilter(kind), 100).events for kind in EventKind}
    assert sorted(event["version"] for events in by_kind.values() for event in events) == sorted(
        event["version"] for event in every
    )
    assert [event["event"] for event in by_kind[EventKind.ACT]] == [
        "SavepointCreated",
        "TimelineSwitched",
        "JobCreated",
    ]
    assert {event["event"] for event in by_kind[EventKind.EPOCH]} == {"CheckpointTriggered", "CheckpointCompleted"}
    assert by_kind[EventKind.FAILURE] == () and by_kind[EventKind.TABLE]


def test_table_checkpoint_and_text_select_what_names_them(job: CountedJob) -> None:
    assert len(whats(job, LogFilter(table="seen"))) >= 4 and whats(job, LogFilter(table="nothing")) == []
    assert "completed checkpoint 3" in whats(job, LogFilter(checkpoint=3))
    assert "completed checkpoint 2" not in whats(job, LogFilter(checkpoint=3))
    assert whats(job, LogFilter(text="PRICES WERE <B>")) == ["rolled back from checkpoint 3 to checkpoint 2"]
    assert whats(job, LogFilter(EventKind.EPOCH, checkpoint=1, text="completed")) == ["completed checkpoint 1"]


def test_pages_follow_one_another_without_a_gap(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    every = [event["version"] for event in job.master.reports.history()]
    before, seen = None, list[int]()
    while True:
        page = job.master.reports.log_page(LogFilter(), 4, before)
        seen += [event["version"] for event in page.events]
        before = page.following
        if before is None:
            break
    assert seen == every
    monkeypatch.setattr(log_page, "MAX_READ", 5)
    page = job.master.reports.log_page(LogFilter(text="created the job"), 10)
    assert page.events == () and page.following == every[4], "what it did not read is on the next page"


def test_a_damaged_entry_ends_the_page_and_is_named(job: CountedJob) -> None:
    newest = job.small.context.head().version
    (job.small.folder / "store" / "small" / manifest_key(newest - 3)).write_bytes(b"{")
    page = job.master.reports.log_page(LogFilter(), 100)
    assert [event["version"] for event in page.events] == [newest, newest - 1, newest - 2]
    assert page.unreadable is not None and manifest_key(newest - 3) in page.unreadable


def test_a_job_that_never_ran_has_no_entries(tmp_path: Path) -> None:
    page = SparklessJob.create(tmp_path).master.reports.log_page(LogFilter(), 10)
    assert (page.events, page.following) == ((), None)
