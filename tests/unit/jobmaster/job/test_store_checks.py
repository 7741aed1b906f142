"""Every store of a job is asked, not only the job's own: the sink's chain and the source's reads rely on theirs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from milepost.jobmaster.job.store_checks import probe_stores, require_stores
from milepost.protocol.records.errors import EnvironmentUnusable
from tests.harness.jobs.sparkless.sparkless_job import SparklessJob
from tests.harness.servers.proxies.header_dropping_proxy import HeaderDroppingProxy
from tests.harness.servers.s3_servers import Ministack

LOCAL = {"path: ../landing/*.csv": "path: s3://{landing}/in/*.csv", "path: ../lake/table": "path: s3://{lake}/table"}


@pytest.fixture
def server(ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> Ministack:
    for name, value in ministack.environment().items():
        monkeypatch.setenv(name, value)
    return ministack


def job_on(server: Ministack, folder: Path, endpoint_url: str, *changed: str) -> tuple[SparklessJob, str]:
    """A job on local folders, but for what `changed` names: that lies in a new bucket behind the endpoint."""
    bucket = server.new_bucket()
    edit = {old: LOCAL[old].format(landing=bucket, lake=bucket) for old in LOCAL if any(one in old for one in changed)}
    store = {"storage: ../store\n": f"storage: ../store\nstore: {{endpoint_url: '{endpoint_url}'}}\n"}
    return SparklessJob.create(folder, edit | store), bucket


def test_a_sink_on_a_store_that_ignores_conditional_creates_is_refused(server: Ministack, tmp_path: Path) -> None:
    """I14: two epochs could both become the head of its chain, although the job's own store is sound."""
    with HeaderDroppingProxy(server.port, dropped_headers=frozenset({"if-none-match"})) as proxy:
        job, bucket = job_on(server, tmp_path, proxy.endpoint_url, "lake")
        for _ in range(2):  # a refusal is not remembered as an answer
            with pytest.raises(EnvironmentUnusable, match=re.escape(f"s3://{bucket}/table")):
                require_stores(job.context)
        failed = [check.check for check in probe_stores(job.context) if not check.ok]
    assert failed and all(check.startswith("sink table: If-None-Match") for check in failed)


def test_a_source_on_a_store_that_ignores_versions_is_refused_and_never_written_to(
    server: Ministack, tmp_path: Path
) -> None:
    """A planned version must be the one that is read; a landing bucket may be read-only."""
    with HeaderDroppingProxy(server.port, dropped_headers=frozenset({"if-match"})) as proxy:
        job, bucket = job_on(server, tmp_path, proxy.endpoint_url, "landing")
        require_stores(job.context)  # an empty bucket answers nothing, and is asked again
        server.client.put_object(Bucket=bucket, Key="in/a.csv", Body=b"k,v\n")
        with pytest.raises(EnvironmentUnusable, match=r"source rows at .* ignored If-Match on GetObject"):
            require_stores(job.context)
        failed = [check.check for check in probe_stores(job.context) if not check.ok]
        methods = {method for method, path in proxy.requests}
    assert failed == ["source rows: If-Match on GetObject"]
    assert methods == {"GET"}


def test_each_place_is_asked_once_per_process(server: Ministack, tmp_path: Path) -> None:
    with HeaderDroppingProxy(server.port) as proxy:
        job, bucket = job_on(server, tmp_path, proxy.endpoint_url, "landing", "lake")
        require_stores(job.context)
        asked = len(proxy.requests)
        require_stores(job.context)
        assert asked and len(proxy.requests) == asked
    assert "Contents" not in server.client.list_objects_v2(Bucket=bucket), "probe objects were removed"
