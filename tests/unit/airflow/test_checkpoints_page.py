"""The Checkpoints page says which timeline is live, what a rollback has left, and which sinks have yet to follow."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.protocol.records.errors import InvalidRequest, StoreUnavailable
from milepost.spec.load.load import LoadedJob
from tests.harness.jobs.counted_job import CountedJob
from tests.harness.servers.kept_dags import keep_dags
from tests.harness.stores.faulty_store import Effect, Fault
from tests.harness.stores.job_stores import break_store


@pytest.fixture(scope="module")
def plugin() -> ModuleType:
    """The page's module; with it, Airflow's server is imported."""
    from milepost.airflow.page import pages

    return pages


def shown(plugin: ModuleType, job: CountedJob) -> str:
    values = plugin._read(job.small.loaded())
    page = plugin._page(200, dag_id="small__epoch", problem="", hint="", **values)
    return str(page.body.decode())


def test_it_tells_the_live_timeline_and_what_a_rollback_has_left(plugin: ModuleType, tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    page = shown(plugin, job)
    assert "timeline main" in page and "not live" not in page and "have yet to follow" not in page
    url = job.small.context.sink_config("seen").url
    with pytest.MonkeyPatch.context() as outage:
        break_store(outage, url, Fault(lambda operation, key: True, Effect.UNAVAILABLE, times=10_000))
        with pytest.raises(StoreUnavailable):
            job.rollback(1, detail="<b>wrong</b>")
    page = shown(plugin, job)
    timeline = job.small.context.head().state.live
    assert f"timeline {timeline}" in page and "sinks that have yet to follow it: seen" in page
    assert page.count('<tr class="left">') == page.count("completed (not live)") == 1
    assert "TimelineSwitched" in page and "&lt;b&gt;wrong&lt;/b&gt;" in page, "text of people is escaped"


def test_it_shows_the_graph_where_names_are_escaped(
    plugin: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the rest of the page where the spec is refused by now."""
    job = CountedJob.with_epochs(tmp_path / "job", 1)
    page = shown(plugin, job)
    assert page.count("<svg") == 1 and 'aria-labelledby="milepost-graph-title' in page and "● " not in page
    assert "▲ grows with distinct k" in page

    def refused(self: LoadedJob) -> None:
        raise InvalidRequest("not any more")

    monkeypatch.setattr(LoadedJob, "graph", refused)
    page = shown(plugin, job)
    assert "<svg" not in page and "<h2>Graph</h2>" not in page and "completed" in page


def test_a_checkpoint_has_a_page_of_where_its_time_went(
    plugin: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that is retained; of others the page says why there is nothing to see, and nothing fails."""
    job = CountedJob.with_epochs(tmp_path / "job", 3, {"last: 1": "last: 2"}).small
    keep_dags(monkeypatch, *job_dags(job.folder / "config").values())
    every = plugin.checkpoints("small__epoch").body.decode()
    assert '<a href="small__epoch/3?job=small">3</a>' in every
    page = plugin.checkpoint("small__epoch", 3)
    shown = page.body.decode()
    phases = job.master.show(3).phases
    assert page.status_code == 200
    for name, spent in phases.items():
        assert (f"<td>{name.removesuffix('_ms')}</td>" in shown) is (spent is not None and name != "total_ms")
    assert f">{phases['total_ms']:,}</th>" in shown and '<a href="../small__epoch?job=small">' in shown
    retained = {int(one.checkpoint_id) for one in job.context.head().state.checkpoints}
    for gone in {1, 2} - retained:
        assert (
            "only a retained checkpoint has its measurements" in plugin.checkpoint("small__epoch", gone).body.decode()
        )
    assert plugin.checkpoint("small__epoch", 9).status_code == 404
    open_to = [route.dependencies for route in plugin.pages.routes]
    assert len(open_to) == 2 and all(open_to), "each route asks Airflow for the user's permission"
