"""The checkpoints of a job say which timeline is live, what a rollback has left, and which sinks have yet to follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.protocol.records.errors import StoreUnavailable
from tests.harness.jobs.counted_job import CountedJob
from tests.harness.servers.page_client import PageClient, page_client
from tests.harness.stores.faulty_store import Effect, Fault
from tests.harness.stores.job_stores import break_store

CHECKPOINTS = "/jobs/small__epoch/checkpoints"


def client_of(job: CountedJob, patch: pytest.MonkeyPatch) -> PageClient:
    return page_client(patch, *job_dags(job.small.folder / "config").values())


def test_they_tell_the_live_timeline_and_what_a_rollback_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    client = client_of(job, monkeypatch)
    page = client.get(CHECKPOINTS).text
    assert "Timeline main" in page and "not live" not in page and "have yet to follow" not in page
    url = job.small.context.sink_config("seen").url
    with pytest.MonkeyPatch.context() as outage:
        break_store(outage, url, Fault(lambda operation, key: True, Effect.UNAVAILABLE, times=10_000))
        with pytest.raises(StoreUnavailable):
            job.rollback(1, detail="<b>wrong</b>")
    page = client.get(CHECKPOINTS).text
    timeline = job.small.context.head().state.live
    assert f"Timeline {timeline}" in page and f"have yet to follow timeline {timeline}: seen" in page
    assert page.count('<tr class="dead">') == page.count("not live") == 1
    assert "TimelineSwitched" in page and "&lt;b&gt;wrong&lt;/b&gt;" in page, "text of people is escaped"


def test_a_checkpoint_has_a_page_of_where_its_time_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that is retained; of others the page says why there is nothing to see, and nothing fails."""
    job = CountedJob.with_epochs(tmp_path / "job", 3, {"last: 1": "last: 2"})
    client = client_of(job, monkeypatch)
    assert f'<a href="{CHECKPOINTS}/3?job=small">3</a>' in client.get(CHECKPOINTS).text
    page = client.get(f"{CHECKPOINTS}/3")
    shown = page.text
    phases = job.master.show(3).phases
    assert page.status_code == 200
    for name, spent in phases.items():
        assert (f"<li><span>{name.removesuffix('_ms')}</span>" in shown) is (spent is not None and name != "total_ms")
    assert f"In all {phases['total_ms']:,} ms" in shown and f'<a href="{CHECKPOINTS}?job=small" aria-current' in shown
    retained = {int(one.checkpoint_id) for one in job.small.context.head().state.checkpoints}
    for gone in {1, 2} - retained:
        assert "only a retained checkpoint has its measurements" in client.get(f"{CHECKPOINTS}/{gone}").text
    missing = client.get(f"{CHECKPOINTS}/9")
    assert missing.status_code == 404 and "has no checkpoint 9" in missing.text and "<h1>small</h1>" in missing.text
