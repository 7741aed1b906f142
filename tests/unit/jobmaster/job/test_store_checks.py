"""Every store of a job is asked, not only the job's own: the sink's chain and the source's reads rely on theirs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.jobmaster.job import store_checks
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


@pytest.fixture
def another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What follows is done by a process that has asked nothing itself, of this user on this machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda: monkeypatch.setattr(store_checks, "_TRUSTED", set())


def marks(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "milepost" / "stores-1").iterdir())


def test_each_place_is_asked_once_within_the_hour(
    server: Ministack, tmp_path: Path, another_process: Callable[[], None]
) -> None:
    with HeaderDroppingProxy(server.port) as proxy:
        job, bucket = job_on(server, tmp_path, proxy.endpoint_url, "landing", "lake")

        def asked() -> int:
            before = len(proxy.requests)
            require_stores(job.context)
            return len(proxy.requests) - before

        first = asked()
        assert first and not asked(), "nor by this process again"
        another_process()
        assert not asked()
        for age_s in (3601, -60):  # long ago; or by a clock that has gone back since
            for mark in marks(tmp_path):
                os.utime(mark, times=(time.time() - age_s,) * 2)
            another_process()
            assert asked() == first
    assert "Contents" not in server.client.list_objects_v2(Bucket=bucket), "probe objects were removed"


def test_a_place_that_was_only_read_is_asked_before_it_is_written_to(
    server: Ministack, tmp_path: Path, another_process: Callable[[], None]
) -> None:
    with HeaderDroppingProxy(server.port, dropped_headers=frozenset({"if-none-match"})) as proxy:
        reads, bucket = job_on(server, tmp_path / "reads", proxy.endpoint_url, "landing")
        server.client.put_object(Bucket=bucket, Key="in/a.csv", Body=b"k,v\n")
        require_stores(reads.context)
        store = f"storage: s3://{bucket}/jobs\nstore: {{endpoint_url: '{proxy.endpoint_url}'}}\n"
        another_process()
        with pytest.raises(EnvironmentUnusable, match="ignored If-None-Match"):
            require_stores(SparklessJob.create(tmp_path / "writes", {"storage: ../store\n": store}).context)


def test_who_asks_anew_and_finds_a_rule_broken_is_believed_by_the_next_process(
    server: Ministack, tmp_path: Path, another_process: Callable[[], None]
) -> None:
    with HeaderDroppingProxy(server.port) as proxy:
        job, _ = job_on(server, tmp_path, proxy.endpoint_url, "lake")
        require_stores(job.context)
        proxy.dropped_headers = frozenset({"if-none-match"})
        assert [check for check in probe_stores(job.context) if not check.ok]
        another_process()
        with pytest.raises(EnvironmentUnusable):
            require_stores(job.context)
