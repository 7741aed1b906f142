"""The page of a job: its state and why come first, then how fresh it is, what to do, its epochs and its tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.jobmaster.jobmaster import Session
from milepost.protocol.records.errors import InvalidRequest, StoreUnavailable
from milepost.spec.load.load import LoadedJob
from tests.harness.jobs.counted_job import CountedJob
from tests.harness.jobs.sparkless_job import SparklessJob
from tests.harness.servers.page_client import PageClient, page_client
from tests.harness.stores.faulty_store import Effect, Fault
from tests.harness.stores.job_stores import break_store, later

OVERVIEW = "/jobs/small__epoch"


def client_of(job: SparklessJob, patch: pytest.MonkeyPatch) -> PageClient:
    return page_client(patch, *job_dags(job.folder / "config").values())


def overview(job: SparklessJob, patch: pytest.MonkeyPatch) -> str:
    answer = client_of(job, patch).get(OVERVIEW)
    assert answer.status_code == 200
    return answer.text


def test_a_healthy_job_tells_its_freshness_its_epochs_and_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    job.land([3, 4])
    page = overview(job.small, monkeypatch)
    assert "healthy" in page and 'class="banner' not in page
    assert "2 objects" in page and "2 unread objects: milepost run small" in page and " ago</dd>" not in page
    assert f'href="{OVERVIEW}/checkpoints/2?job=small"' in page and "checkpoint 2</span>" in page
    assert '<strong><a href="/dags/small__epoch" data-airflow>Run an epoch</a></strong>' in page
    assert 'href="/jobs/small__operate/form?job=small&amp;what=rollback"' in page and "resume" not in page


def failed(job: SparklessJob, patch: pytest.MonkeyPatch) -> None:
    job.land("b.csv")
    session = Session.cli()
    pending = job.master.trigger(session)
    job.master.abort(session, pending.checkpoint_id, "SUBTASK_DECLINED", "<b>line 2</b>")


def canceled(job: SparklessJob, patch: pytest.MonkeyPatch) -> None:
    job.master.cancel()


def fenced(job: SparklessJob, patch: pytest.MonkeyPatch) -> None:
    job.land("b.csv")
    job.master.trigger(Session.cli())
    later(patch, 3_600_000)


def refused(job: SparklessJob, patch: pytest.MonkeyPatch) -> None:
    (job.folder / "landing" / "a.csv").write_text("k,v\n1,a\n2,changed\n")


@pytest.mark.parametrize(
    ("happens", "word", "told"),
    [
        (failed, "Failed", "CHECKPOINT_DECLINED: &lt;b&gt;line 2&lt;/b&gt;. No epoch runs until it is resumed."),
        (canceled, "Canceled", "Incarnation 1 ended at "),
        (fenced, "Lease over", "Nobody works on checkpoint 2 any more: "),
        (refused, "Input refused", "a.csv"),
    ],
)
def test_what_is_wrong_stands_above_all_with_its_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[SparklessJob, pytest.MonkeyPatch], None],
    word: str,
    told: str,
) -> None:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.epoch()
    client = client_of(job, monkeypatch)
    happens(job, monkeypatch)
    page = client.get(OVERVIEW).text
    assert word in page[: page.index('<dl class="facts">')] and told in page[: page.index('<dl class="facts">')]
    assert "<b>" not in page
    assert f'href="/runbook/{job.master.status().condition.value}"' in page
    assert ('what=resume"' in page) is (happens is failed)
    assert ('what=start"' in page) is (happens is canceled)


def test_sinks_that_have_yet_to_follow_a_rollback_are_named_above_all_and_in_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    url = job.small.context.sink_config("seen").url
    with pytest.MonkeyPatch.context() as outage:
        break_store(outage, url, Fault(lambda operation, key: True, Effect.UNAVAILABLE, times=10_000))
        with pytest.raises(StoreUnavailable):
            job.rollback(1)
    timeline = job.small.context.head().state.live
    page = overview(job.small, monkeypatch)
    assert f"Sinks seen have yet to follow timeline {timeline}." in page
    assert f"has yet to follow timeline {timeline}</span>" in page


def test_a_job_that_never_ran_says_what_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = overview(SparklessJob.create(tmp_path), monkeypatch)
    assert "Initializing" in page and "No checkpoint yet" in page and "nothing yet</span>" in page


def test_the_graph_is_shown_and_where_it_is_refused_by_now_the_rest_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 1).small
    page = overview(job, monkeypatch)
    assert page.count('class="milepost-graph"') == 1 and 'aria-labelledby="milepost-graph-title' in page
    assert "▲ grows with distinct k" in page

    def refuse(self: LoadedJob) -> None:
        raise InvalidRequest("not any more")

    client = client_of(job, monkeypatch)
    monkeypatch.setattr("milepost.airflow.page.routes.overview.lint_report", refuse)
    page = client.get(OVERVIEW).text
    assert "milepost-graph" not in page and "<h2>Graph</h2>" not in page and "completed" in page


def test_a_head_that_cannot_be_read_is_told_with_the_way_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    next((job.small.folder / "store").rglob("chk-*2/t*/_metadata")).write_bytes(b"{")
    answer = client_of(job.small, monkeypatch).get(OVERVIEW)
    assert answer.status_code == 503 and "milepost rollback small" in answer.text and "<h1>small</h1>" in answer.text
