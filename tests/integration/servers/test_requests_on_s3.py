"""A checkpoint records the S3 requests of its epoch: exactly those that the server saw, by class."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from milepost.jobmaster import Session, Triggered
from milepost.jobmaster.figures.timings import REQUEST_PHASES
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.open import open_store
from milepost.storage.requests import REQUEST_COUNTER, RequestClass, StoreRequests, class_of
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.proxies.recording_proxy import RecordingProxy
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.s3_servers import Ministack


@pytest.fixture
def job(ministack: Ministack, proxy: RecordingProxy, tmp_path: Path) -> SparklessJob:
    """A job with state and table in a bucket, reached through the proxy; its second epoch is the one that counts."""
    bucket = ministack.new_bucket()
    endpoint = f"store: {{endpoint_url: '{proxy.endpoint_url}'}}"
    edit = {
        "storage: ../store\n": f"storage: s3://{bucket}/jobs\n{endpoint}\n",
        "../lake/table": f"s3://{bucket}/lake/table",
    }
    job = SparklessJob.create(tmp_path, edit)
    job.land("0.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    job.land("1.csv")
    proxy.requests.clear()
    return job


def seen_by(proxy: RecordingProxy) -> Counter[RequestClass]:
    """Return the requests until the measurements and the row of figures are stored: then the report is read."""
    last_writes = ("/metrics/after-", "/figures/", "?delete")
    last = max(at for at, (_, path) in enumerate(proxy.requests) if any(part in path for part in last_writes))
    return Counter(class_of(method, path) for method, path in proxy.requests[: last + 1])


def by_class(made: StoreRequests) -> Counter[RequestClass]:
    return +Counter({RequestClass.PUT: made.puts, RequestClass.GET: made.gets, RequestClass.DELETE: made.deletes})


@pytest.mark.deep
def test_an_epoch_here_and_now_says_what_the_server_saw(job: SparklessJob, proxy: RecordingProxy) -> None:
    document = job.master.epochs.run(Session.cli(), SparklessRunner())
    asked = sum(document.requests.values(), StoreRequests())
    assert by_class(asked) == seen_by(proxy)
    assert [*document.requests] == [*REQUEST_PHASES]
    assert document.requests["tasks"].puts >= len(document.tasks) and asked.sent_bytes > document.checkpointed_bytes
    assert asked.received_bytes > 0
    assert job.master.reports.show().requests == document.requests
    told = milepost("show", job.folder / "config" / "small.yaml").stdout.splitlines()
    total = next(line.split() for line in told[told.index("Requests: to the store, by phase") :] if "total" in line)
    assert total[:4] == ["total", str(asked.puts), str(asked.gets), str(asked.deletes)]


@pytest.mark.deep
def test_processes_that_share_an_epoch_count_together_what_the_server_saw(
    job: SparklessJob, proxy: RecordingProxy
) -> None:
    """Under a scheduler each step has a process of its own: the trigger's count travels with its times."""
    session = Session.cli()
    triggered = job.master.triggers.trigger(session)
    assert isinstance(triggered, Triggered)
    job.master.epochs.run_epoch(session, 2, SparklessRunner(), planned=triggered.times)
    token = job.master.epochs.complete(session, 2).token
    report = job.master.reports.show(2)
    assert report.requests["plan"] == triggered.times.requests != StoreRequests()
    assert report.requests["commit"] == StoreRequests(puts=1)  # of the metadata: no step after it kept a measurement
    assert token and report.requests["tasks"].puts >= len(report.tasks)


def test_each_try_of_a_request_is_counted(ministack: Ministack, proxy: RecordingProxy) -> None:
    """The library retries a request if its reply is lost, and the provider bills both."""
    store = open_store(StoreConfig(f"s3://{ministack.shared_bucket}/tries", proxy.endpoint_url))
    store.put("key", b"12345")
    proxy.requests.clear()
    resets = iter([True])
    proxy.reset_when = lambda method, path, headers: next(resets, False)
    before = REQUEST_COUNTER.totals()
    assert store.get("key") == b"12345"
    assert len(proxy.requests) == 2
    assert REQUEST_COUNTER.totals() - before == StoreRequests(gets=2, received_bytes=5)
