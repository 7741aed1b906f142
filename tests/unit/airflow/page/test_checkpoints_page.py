"""The checkpoints of a job say which timeline is live, what a rollback has left, and which sinks have yet to follow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.errors import StoreUnavailable
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import PageClient, page_client
from milepost_testkit.airflow.page_text import FIGURES, page_text
from milepost_testkit.jobs.rollbacks import decided
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.stores.faulty_store import Effect, Fault
from milepost_testkit.stores.job_stores import break_store

CHECKPOINTS = "/jobs/small__epoch/checkpoints"


def client_of(job: CountedJob, patch: pytest.MonkeyPatch) -> PageClient:
    return page_client(patch, *job_dags(job.small.folder / "config").values())


def next_page(page: str) -> str:
    """Return the address of the page of older checkpoints, "" of the last page."""
    link = re.search(r'<a href="([^"]+[?;]following=[^"]+)">', page)
    return link[1].replace("&amp;", "&") if link else ""


def test_the_live_timeline_is_listed_and_abandoned_checkpoints_are_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    client = client_of(job, monkeypatch)
    page = client.get(CHECKPOINTS).text
    assert '<tr class="dead">' not in page and 'class="banner' not in page
    wording.matches("page_checkpoints", page_text(page, "h2"))
    url = job.small.context.sink_config("seen").url
    with pytest.MonkeyPatch.context() as outage:
        break_store(outage, url, Fault(lambda operation, key: True, Effect.UNAVAILABLE, times=10_000))
        with pytest.raises(StoreUnavailable):
            job.rollback(1, decision=decided("<b>wrong</b>"))
    page = client.get(CHECKPOINTS).text
    timeline = job.small.context.head().state.live
    banner = page_text(page, ".banner")
    assert timeline in banner and "seen" in banner
    folded = page[page.index('<details class="left">') :]
    assert page.count('<tr class="dead">') == folded.count('<tr class="dead">') == 1
    wording.matches("page_checkpoints", page_text(page, ".banner", "h2", "summary"), replace=wording.CLOCK_TIMES)
    assert "<td>tester</td>" in page and "&lt;b&gt;wrong&lt;/b&gt;" in page and "<b>" not in page


def test_many_checkpoints_are_shown_a_page_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.airflow.page.routes.checkpoints.SHOWN_CHECKPOINTS", 2)
    job = CountedJob.with_epochs(tmp_path / "job", 5)
    client = client_of(job, monkeypatch)
    address, told = CHECKPOINTS, []
    while address:
        page = client.get(address).text
        told.append([int(one) for one in re.findall(r"/checkpoints/(\d+)\?job=small\">\d", page)])
        address = next_page(page)
    assert told == [[5, 4], [3, 2], [1]]
    assert client.get(f"{CHECKPOINTS}?following=%3Cb%3E").status_code == 422


def test_filters_by_status_and_timeline_are_in_the_url_of_every_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.airflow.page.routes.checkpoints.SHOWN_CHECKPOINTS", 2)
    job = CountedJob.with_epochs(tmp_path / "job", 4, {"last: 20": "last: 3"})
    timeline = job.rollback(3).timeline
    job.land([9])
    job.run(2)
    job.land([10])
    job.master.epochs.abort(
        session := Session.cli(), job.master.triggers.trigger(session).checkpoint_id, "ABORTED_BY_USER", "no"
    )
    client, every = client_of(job, monkeypatch), job.master.reports.list_checkpoints()
    for chosen, wanted in (
        ("status=completed", [one for one in every if one.status == "completed"]),
        ("status=subsumed", [one for one in every if one.status == "subsumed"]),
        ("status=aborted", [one for one in every if one.status == "aborted"]),
        ("status=pending", []),
        ("timeline=main", [one for one in every if one.timeline == "main"]),
        (
            "status=completed&timeline=main",
            [one for one in every if (one.status, one.timeline) == ("completed", "main")],
        ),
    ):
        address, told = f"{CHECKPOINTS}?{chosen}", []
        while address:
            page = client.get(address).text
            told += [int(one) for one in re.findall(r"/checkpoints/(\d+)\?job=small\">\d", page)]
            assert all(f"<strong>{one.partition('=')[2]}</strong>" in page for one in chosen.split("&"))
            address = next_page(page)
            assert not address or all(one in address for one in chosen.split("&"))
        assert told == [one.checkpoint_id for one in wanted], chosen
    wording.matches("page_checkpoints", page_text(client.get(f"{CHECKPOINTS}?status=pending").text, "#main"))
    page = client.get(CHECKPOINTS).text
    assert f'href="{CHECKPOINTS}?job=small&amp;timeline={timeline}">{timeline}</a>' in page
    assert client.get(f"{CHECKPOINTS}?status=%3Cb%3E").status_code == 422


def test_the_run_that_made_a_checkpoint_is_a_link_to_airflow_s_page_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.create(tmp_path / "job")
    job.land([1])
    job.master.triggers.trigger(Session.airflow("small__epoch", "manual__<b>/1", "manual", None))
    page = client_of(job, monkeypatch).get(CHECKPOINTS).text
    assert '<a href="/dags/small__epoch/runs/manual__%3Cb%3E%2F1" data-airflow>manual</a>' in page


def test_the_log_is_filtered_by_a_form_and_each_entry_has_a_permanent_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    job.rollback(1, decision=decided("<b>wrong</b>"))
    client = client_of(job, monkeypatch)
    page = client.get("/jobs/small__epoch/log").text
    assert "created the job" in page and "rolled back from checkpoint 2 to checkpoint 1" in page
    assert "&lt;b&gt;wrong&lt;/b&gt;" in page and "<b>" not in page
    acts = client.get("/jobs/small__epoch/log?job=small&kind=act&table=&checkpoint=&text=WRONG").text
    assert "rolled back from" in acts and "created the job" not in acts
    assert '<option value="act" selected>' in acts and 'value="WRONG"' in acts
    (link,) = re.findall(r'<a href="(/jobs/small__epoch/log\?[^"]*before=2)"', page)
    entry = client.get(link.replace("&amp;", "&")).text
    assert "created the job" in entry and "rolled back from" not in entry
    for wrong in ("kind=x", "checkpoint=-1", f"text={'x' * 201}", "before=0"):
        assert client.get(f"/jobs/small__epoch/log?{wrong}").status_code == 422, wrong
    foot = client.get("/jobs/small__epoch").text
    assert foot.index('<h2 id="log">') > foot.index('<h2 id="epochs">') and foot.count('name="kind"') == 1


@pytest.mark.deep
def test_a_checkpoint_has_a_page_with_its_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that is retained; of others the page says why there is nothing to see, and nothing fails."""
    job = CountedJob.with_epochs(tmp_path / "job", 3, {"last: 1": "last: 2"})
    client = client_of(job, monkeypatch)
    assert f'<a href="{CHECKPOINTS}/3?job=small">3</a>' in client.get(CHECKPOINTS).text
    page = client.get(f"{CHECKPOINTS}/3")
    shown = page.text
    phases = job.master.reports.show(3).phases
    assert page.status_code == 200
    for name, spent in phases.items():
        shows = "" if spent is None else f'<td class="n">{spent:,}</td>'
        assert (f'<th scope="row">{name.removesuffix("_ms")}</th>{shows}' in shown) is (spent is not None)
    assert f'<a href="{CHECKPOINTS}?job=small" aria-current' in shown
    retained = {int(one.checkpoint_id) for one in job.small.context.head().state.checkpoints}
    wording.matches("page_checkpoint", page_text(shown, "h2", "p"), replace=FIGURES)
    for gone in {1, 2} - retained:
        without = client.get(f"{CHECKPOINTS}/{gone}").text
        assert '<h2 id="time">' in shown and '<h2 id="time">' not in without
        wording.matches("page_checkpoint", page_text(without, ".banner"))
    missing = client.get(f"{CHECKPOINTS}/9")
    assert missing.status_code == 404 and "<h1>small</h1>" in missing.text
    wording.matches("page_problem", page_text(missing.text, ".banner"))
