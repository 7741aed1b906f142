"""The Checkpoints page says which timeline is live, what a rollback has left, and which sinks have yet to follow."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from pipeline.protocol.errors import StoreUnavailable
from tests.harness.counted_job import CountedJob
from tests.harness.faulty_store import Effect, Fault
from tests.harness.job_stores import break_store

PLUGIN = Path(__file__).resolve().parents[3] / "plugins" / "checkpoints_page.py"


@pytest.fixture(scope="module")
def plugin() -> ModuleType:
    """The plugin as Airflow loads it."""
    spec = importlib.util.spec_from_file_location("checkpoints_page", PLUGIN)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
