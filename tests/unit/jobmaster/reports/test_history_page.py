"""The history is read by pages. Together they equal the whole walk, and each reads only its range."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost.jobmaster import HistoryPage, JobMaster, Session
from milepost.jobmaster.reports.history import history
from milepost.protocol.records.checkpoints import CheckpointStatus
from milepost.storage.log.read_ahead import MAX_PARALLEL_REQUESTS
from milepost_testkit import wording
from milepost_testkit.jobs.rollbacks import decided
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.stores.job_stores import hook_stores


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Two rollbacks, an aborted epoch and a pending one."""
    job = CountedJob.with_epochs(tmp_path_factory.mktemp("job"), 4, {"last: 1": "last: 3"})
    job.rollback(3, decision=decided("first"))
    job.land([5])
    job.run(2)
    session = Session.cli()
    job.land([7])
    job.master.epochs.abort(session, job.master.triggers.trigger(session).checkpoint_id, "ABORTED_BY_USER", "no")
    job.master.lifecycle.resume(Session.cli())
    job.rollback(5, decision=decided("second"))
    job.run(1)
    job.land([8])
    job.master.triggers.trigger(Session.cli())
    return job


def pages_of(master: JobMaster, limit: int) -> list[HistoryPage]:
    pages = [master.reports.history_page(limit)]
    while pages[-1].following is not None:
        pages.append(master.reports.history_page(limit, pages[-1].following))
    return pages


@pytest.mark.deep
@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_all_pages_list_every_checkpoint_once_and_each_switch_with_the_branch_it_left(
    job: CountedJob, limit: int
) -> None:
    pages = pages_of(job.master, limit)
    told = [one for page in pages for one in page.checkpoints]
    every = job.master.reports.list_checkpoints()
    assert [(one.checkpoint_id, one.status, one.live) for one in told] == [
        (one.checkpoint_id, one.status, one.live) for one in every
    ]
    assert all(len(page.checkpoints) >= limit for page in pages[:-1])
    switches = [one for page in pages for one in page.switches]
    assert [(one.kind, one.at_checkpoint, one.detail.partition(" (command line): ")[2]) for one in switches] == [
        ("rollback", 5, "second"),
        ("rollback", 3, "first"),
    ]


@pytest.mark.deep
def test_the_live_lineage_equals_that_of_the_walk(job: CountedJob, tmp_path: Path) -> None:
    """Up to the first compacted entry: retained checkpoints come from the head, older ones from the log."""
    thinned = CountedJob.with_epochs(tmp_path / "thinned", 1, {"last: 1": "last: 2"})
    thinned.master.savepoints.create("first")
    thinned.land(range(2, 7))
    thinned.run(5)
    for one, statuses in ((job, {"completed"}), (thinned, {"completed", "subsumed"})):
        whole = takewhile(lambda report: not report.compacted, one.master.reports.list_checkpoints())
        done = [report for report in whole if report.live and report.status in ("completed", "subsumed")]
        assert {report.status for report in done} == statuses and len(done) > 2
        for limit in (1, 2, 3, 5, 50):
            assert history.History(one.small.context).live(limit) == done[:limit]


def test_a_page_reads_only_its_range_of_the_log(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """However far back it starts. Only the entry that began the live timeline, which names it, is read as well."""
    last = pages_of(job.master, 2)[-2].following
    read: list[int] = []

    def note(operation: str, key: str) -> None:
        if found := re.search(r"manifest/(\d{20})", key):
            read.append(10**19 - int(found[1]))

    hook_stores(monkeypatch, before=note)
    page = job.master.reports.history_page(2, last)
    state = job.small.context.head().state
    head, begun = state.version, int(state.live.removeprefix("t"))
    before = int(str(last).split("-")[0])
    assert page.checkpoints and {version for version in read if version >= before} <= {head, head + 1, begun}, (
        "and the head"
    )


@pytest.mark.deep
@pytest.mark.parametrize("limit", [1, 2, 50])
@pytest.mark.parametrize("status", [None, *(one.value for one in CheckpointStatus)])
@pytest.mark.parametrize("timeline", [None, "main"])
def test_all_filtered_pages_list_each_selected_checkpoint_once(
    job: CountedJob, limit: int, status: str | None, timeline: str | None
) -> None:
    pages = [job.master.reports.history_page(limit, status=status, timeline=timeline)]
    while (following := pages[-1].following) is not None:
        pages.append(job.master.reports.history_page(limit, following, status=status, timeline=timeline))
    assert [(one.checkpoint_id, one.status, one.live) for page in pages for one in page.checkpoints] == [
        (one.checkpoint_id, one.status, one.live)
        for one in job.master.reports.list_checkpoints()
        if status in (None, one.status) and timeline in (None, one.timeline)
    ]


def test_a_filtered_page_reads_a_limited_number_of_excluded_entries(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retained checkpoints come from the head, which is read already, however far apart they are."""
    entries: set[str] = set()

    def note(operation: str, key: str) -> None:
        if operation == "get" and "manifest/" in key:
            entries.add(key)

    hook_stores(monkeypatch, before=note)
    assert job.master.reports.history_page(50, status="completed").checkpoints and not entries
    monkeypatch.setattr(history, "_MAX_SKIPPED", 6)
    pages = [job.master.reports.history_page(50, status="aborted")]
    while (following := pages[-1].following) is not None:
        entries.clear()
        pages.append(job.master.reports.history_page(50, following, status="aborted"))
        assert len(entries) <= 6 + 2 * MAX_PARALLEL_REQUESTS
    assert len(pages) > 2 and [one.checkpoint_id for page in pages for one in page.checkpoints] == [7]


def test_an_unknown_status_is_refused(job: CountedJob) -> None:
    with wording.raises(InvalidRequest):
        job.master.reports.history_page(5, status="done")


def test_a_job_that_never_ran_has_an_empty_page(tmp_path: Path) -> None:
    assert CountedJob.create(tmp_path / "job").master.reports.history_page(5) == HistoryPage((), (), None)


@pytest.mark.parametrize("position", ["", "7", "x-1", "1-", "-1", "1-2-3", "٣-1"])
def test_an_invalid_position_is_refused(job: CountedJob, position: str) -> None:
    with wording.raises(InvalidRequest):
        job.master.reports.history_page(5, position)
