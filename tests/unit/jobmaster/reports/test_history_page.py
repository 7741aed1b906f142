"""A history is read a page at a time: together they tell what the whole walk tells, and each reads its part only."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost.jobmaster.jobmaster import HistoryPage, JobMaster, Session
from milepost.jobmaster.reports.history import history
from milepost.protocol.records.checkpoints import CheckpointStatus
from milepost.storage.log.read_ahead import MAX_PARALLEL_REQUESTS
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.stores.job_stores import hook_stores


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


@pytest.mark.long
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


@pytest.mark.long
def test_the_live_line_is_told_as_the_walk_tells_it(job: CountedJob, tmp_path: Path) -> None:
    """As far as the log is whole: of what is retained one after another by the head, of the rest by the log."""
    thinned = CountedJob.with_epochs(tmp_path / "thinned", 1, {"last: 1": "last: 2"})
    thinned.master.create_savepoint("first")
    thinned.land(range(2, 7))
    thinned.run(5)
    for one, statuses in ((job, {"completed"}), (thinned, {"completed", "subsumed"})):
        whole = takewhile(lambda report: not report.compacted, one.master.list_checkpoints())
        done = [report for report in whole if report.live and report.status in ("completed", "subsumed")]
        assert {report.status for report in done} == statuses and len(done) > 2
        for limit in (1, 2, 3, 5, 50):
            assert history.History(one.small.context).live(limit) == done[:limit]


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


@pytest.mark.parametrize("limit", [1, 2, 50])
@pytest.mark.parametrize("status", [None, *(one.value for one in CheckpointStatus)])
@pytest.mark.parametrize("timeline", [None, "main"])
def test_pages_of_some_checkpoints_together_tell_each_of_them_once(
    job: CountedJob, limit: int, status: str | None, timeline: str | None
) -> None:
    pages = [job.master.history_page(limit, status=status, timeline=timeline)]
    while (following := pages[-1].following) is not None:
        pages.append(job.master.history_page(limit, following, status=status, timeline=timeline))
    assert [(one.checkpoint_id, one.status, one.live) for page in pages for one in page.checkpoints] == [
        (one.checkpoint_id, one.status, one.live)
        for one in job.master.list_checkpoints()
        if status in (None, one.status) and timeline in (None, one.timeline)
    ]


def test_what_is_not_wanted_is_read_for_as_long_as_a_person_waits(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of retained checkpoints the head tells all: however many epochs lie between them, no other entry is read."""
    entries: set[str] = set()

    def note(operation: str, key: str) -> None:
        if operation == "get" and "manifest/" in key:
            entries.add(key)

    hook_stores(monkeypatch, before=note)
    assert job.master.history_page(50, status="completed").checkpoints and len(entries) == 1
    monkeypatch.setattr(history, "_MAX_SKIPPED", 6)
    pages = [job.master.history_page(50, status="aborted")]
    while (following := pages[-1].following) is not None:
        entries.clear()
        pages.append(job.master.history_page(50, following, status="aborted"))
        assert len(entries) <= 1 + 6 + 2 * MAX_PARALLEL_REQUESTS
    assert len(pages) > 2 and [one.checkpoint_id for page in pages for one in page.checkpoints] == [7]


def test_a_status_that_is_none_is_refused(job: CountedJob) -> None:
    with wording.raises(InvalidRequest):
        job.master.history_page(5, status="done")


def test_a_job_that_never_ran_has_an_empty_page(tmp_path: Path) -> None:
    assert CountedJob.create(tmp_path / "job").master.history_page(5) == HistoryPage((), (), None)


@pytest.mark.parametrize("position", ["", "7", "x-1", "1-", "-1", "1-2-3", "٣-1"])
def test_what_is_no_position_is_refused(job: CountedJob, position: str) -> None:
    with wording.raises(InvalidRequest):
        job.master.history_page(5, position)
