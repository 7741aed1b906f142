"""A history is read a page at a time: together they tell what the whole walk tells, and each reads its part only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from milepost.jobmaster.jobmaster import HistoryPage, JobMaster, Session
from milepost.protocol.records.errors import InvalidRequest
from tests.harness.jobs.counted_job import CountedJob
from tests.harness.stores.job_stores import hook_stores


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Two rollbacks, an epoch that was given up, and one that is pending."""
    job = CountedJob.with_epochs(tmp_path_factory.mktemp("job"), 4, {"last: 1": "last: 3"})
    job.rollback(3, detail="first")
    job.land([5])
    job.run(2)
    session = Session.cli()
    job.land([7])
    job.master.abort(session, job.master.trigger(session).checkpoint_id, "ABORTED_BY_USER", "no")
    job.master.resume(Session.cli())
    job.rollback(5, detail="second")
    job.run(1)
    job.land([8])
    job.master.trigger(Session.cli())
    return job


def pages_of(master: JobMaster, limit: int) -> list[HistoryPage]:
    pages = [master.history_page(limit)]
    while pages[-1].following is not None:
        pages.append(master.history_page(limit, pages[-1].following))
    return pages


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_pages_together_tell_every_checkpoint_once_and_each_switch_beside_what_it_left(
    job: CountedJob, limit: int
) -> None:
    pages = pages_of(job.master, limit)
    told = [one for page in pages for one in page.checkpoints]
    every = job.master.list_checkpoints()
    assert [(one.checkpoint_id, one.status, one.live) for one in told] == [
        (one.checkpoint_id, one.status, one.live) for one in every
    ]
    assert all(len(page.checkpoints) >= limit for page in pages[:-1])
    switches = [one for page in pages for one in page.switches]
    assert [(one.kind, one.at_checkpoint, one.detail) for one in switches] == [
        ("rollback", 5, "second"),
        ("rollback", 3, "first"),
    ]


def test_a_page_reads_its_stretch_of_the_log_and_no_more(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """However far back it begins."""
    last = pages_of(job.master, 2)[-2].following
    read: list[int] = []

    def note(operation: str, key: str) -> None:
        if found := re.search(r"manifest/(\d{20})", key):
            read.append(10**19 - int(found[1]))

    hook_stores(monkeypatch, before=note)
    page = job.master.history_page(2, last)
    head = job.small.context.head().version
    before = int(str(last).split("-")[0])
    assert page.checkpoints and {version for version in read if version >= before} <= {head, head + 1}, "and the head"


def test_a_job_that_never_ran_has_an_empty_page(tmp_path: Path) -> None:
    assert CountedJob.create(tmp_path / "job").master.history_page(5) == HistoryPage((), (), None)


@pytest.mark.parametrize("position", ["", "7", "x-1", "1-", "-1", "1-2-3", "٣-1"])
def test_what_is_no_position_is_refused(job: CountedJob, position: str) -> None:
    with pytest.raises(InvalidRequest, match="is no position in a job's history"):
        job.master.history_page(5, position)
