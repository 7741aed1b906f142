"""Every store of a job is probed, because sink chains and source reads rely on theirs, too."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from milepost.errors import EnvironmentUnusable, StoreUnavailable
from milepost.jobmaster.job.checks import store_checks
from milepost.jobmaster.job.checks.store_checks import head_within_deadline, probe_stores, require_stores
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.proxies.recording_proxy import RecordingProxy
from milepost_testkit.servers.s3_servers import Ministack
from milepost_testkit.specs.spec_edits import edit_spec

LOCAL = {"path: ../landing/*.csv": "path: s3://{landing}/in/*.csv", "path: ../lake/table": "path: s3://{lake}/table"}


@pytest.fixture
def server(ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> Ministack:
    for name, value in ministack.environment().items():
        monkeypatch.setenv(name, value)
    return ministack


def job_on(server: Ministack, folder: Path, endpoint_url: str, *changed: str) -> tuple[SparklessJob, str]:
    """A job on local folders, except for what `changed` names: that is in a new bucket behind the endpoint."""
    bucket = server.new_bucket()
    edit = {old: LOCAL[old].format(landing=bucket, lake=bucket) for old in LOCAL if any(one in old for one in changed)}
    store = {"storage: ../store\n": f"storage: ../store\nstore: {{endpoint_url: '{endpoint_url}'}}\n"}
    return SparklessJob.create(folder, edit | store), bucket


@pytest.mark.deep
def test_a_sink_on_a_store_that_ignores_conditional_creates_is_refused(server: Ministack, tmp_path: Path) -> None:
    """I14: two epochs could both become the head of its chain, although the job's own store is sound."""
    with RecordingProxy(server.port, dropped_headers=frozenset({"if-none-match"})) as proxy:
        job, bucket = job_on(server, tmp_path, proxy.endpoint_url, "lake")
        for _ in range(2):  # a refusal is not remembered as an answer
            with wording.raises(EnvironmentUnusable) as refused:
                require_stores(job.context)
            assert bucket in str(refused.value)
        failed = [check.check for check in probe_stores(job.context) if not check.ok]
    assert failed and all(check.startswith("sink table: If-None-Match") for check in failed)


def test_a_source_on_a_store_that_ignores_versions_is_refused_and_never_written_to(
    server: Ministack, tmp_path: Path
) -> None:
    """A planned version must be the one that is read; a landing bucket may be read-only."""
    with RecordingProxy(server.port, dropped_headers=frozenset({"if-match"})) as proxy:
        job, bucket = job_on(server, tmp_path, proxy.endpoint_url, "landing")
        require_stores(job.context)  # an empty bucket answers nothing, and is asked again
        server.client.put_object(Bucket=bucket, Key="in/a.csv", Body=b"k,v\n")
        with wording.raises(EnvironmentUnusable):
            require_stores(job.context)
        failed = [check.check for check in probe_stores(job.context) if not check.ok]
        methods = {method for method, path in proxy.requests}
    assert failed == ["source rows: If-Match on GetObject"]
    assert methods == {"GET"}


@pytest.fixture
def another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Simulate a new process of this user on this machine, which has probed nothing itself."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda: monkeypatch.setattr(store_checks, "_TRUSTED", set())


def marks(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "milepost" / "stores-1").iterdir())


@pytest.mark.deep
def test_each_location_is_probed_once_per_hour(
    server: Ministack, tmp_path: Path, another_process: Callable[[], None]
) -> None:
    with RecordingProxy(server.port) as proxy:
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


def test_a_location_that_was_only_read_is_probed_before_it_is_written_to(
    server: Ministack, tmp_path: Path, another_process: Callable[[], None]
) -> None:
    with RecordingProxy(server.port, dropped_headers=frozenset({"if-none-match"})) as proxy:
        reads, bucket = job_on(server, tmp_path / "reads", proxy.endpoint_url, "landing")
        server.client.put_object(Bucket=bucket, Key="in/a.csv", Body=b"k,v\n")
        require_stores(reads.context)
        store = f"storage: s3://{bucket}/jobs\nstore: {{endpoint_url: '{proxy.endpoint_url}'}}\n"
        another_process()
        with wording.raises(EnvironmentUnusable):
            require_stores(SparklessJob.create(tmp_path / "writes", {"storage: ../store\n": store}).context)


@pytest.mark.deep
def test_a_repeated_probe_that_fails_is_believed_by_the_next_process(
    server: Ministack, tmp_path: Path, another_process: Callable[[], None]
) -> None:
    with RecordingProxy(server.port) as proxy:
        job, _ = job_on(server, tmp_path, proxy.endpoint_url, "lake")
        require_stores(job.context)
        proxy.dropped_headers = frozenset({"if-none-match"})
        assert [check for check in probe_stores(job.context) if not check.ok]
        another_process()
        with pytest.raises(EnvironmentUnusable):
            require_stores(job.context)


class _Refusing(BaseHTTPRequestHandler):
    """An endpoint that denies every request immediately."""

    def answer(self) -> None:
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = do_HEAD = answer

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def forbidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparklessJob]:
    """A job whose storage is at such an endpoint."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    store = f"storage: s3://lake/jobs\nstore: {{endpoint_url: 'http://127.0.0.1:{server.server_port}'}}\n"
    yield SparklessJob.create(tmp_path, {"storage: ../store\n": store})
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("guarantee", "age_s", "probes"),
    [("WRITES", 0, False), ("WRITES", 3590, False), ("WRITES", 3601, True), ("WRITES", -60, True), ("READS", 0, True)],
)
def test_a_probe_of_another_process_is_trusted_for_an_hour_and_for_its_guarantee(
    guarantee: str,
    age_s: int,
    probes: bool,
    forbidden: SparklessJob,
    tmp_path: Path,
    another_process: Callable[[], None],
) -> None:
    """A read probe does not cover conditional creates. After a clock went back, the age is unknown."""
    store_checks._trust(store_checks._place(forbidden.context.store_config), store_checks._Guarantee[guarantee])
    another_process()
    (mark,) = marks(tmp_path)
    os.utime(mark, times=(time.time() - age_s,) * 2)
    with pytest.raises(EnvironmentUnusable) if probes else nullcontext():
        require_stores(forbidden.context)


def test_a_failed_probe_revokes_the_trust_of_all_later_processes(
    forbidden: SparklessJob, tmp_path: Path, another_process: Callable[[], None]
) -> None:
    store_checks._trust(store_checks._place(forbidden.context.store_config), store_checks._Guarantee.READS)
    another_process()
    with pytest.raises(EnvironmentUnusable):
        require_stores(forbidden.context)
    assert marks(tmp_path) == []


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "HTTP_PROXY"])
def test_a_location_is_probed_again_if_the_environment_changes_its_endpoint(
    variable: str,
    server: Ministack,
    tmp_path: Path,
    another_process: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two shells of one user: the same spec and bucket, but another endpoint."""
    if variable == "HTTP_PROXY":
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint_url)
    with RecordingProxy(server.port) as sound, RecordingProxy(server.port) as broken:
        broken.dropped_headers = frozenset({"if-none-match"})
        job, _ = job_on(server, tmp_path, "${env:NOWHERE:-}", "lake")
        monkeypatch.setenv(variable, sound.endpoint_url)
        require_stores(job.context)
        assert sound.requests
        another_process()
        monkeypatch.setenv(variable, broken.endpoint_url)
        monkeypatch.setenv("AWS_EXECUTION_ENV", "another")  # its clients are its own
        with wording.raises(EnvironmentUnusable):
            require_stores(job.context)


@pytest.mark.deep
def test_a_failed_write_probe_makes_the_next_process_probe_reads(
    server: Ministack, tmp_path: Path, another_process: Callable[[], None]
) -> None:
    """A writing job finds the store broken within the hour in which a reading job trusts it."""
    with RecordingProxy(server.port) as proxy:
        reads, bucket = job_on(server, tmp_path / "reads", proxy.endpoint_url, "landing")
        server.client.put_object(Bucket=bucket, Key="in/a.csv", Body=b"k,v\n")
        require_stores(reads.context)
        proxy.dropped_headers = frozenset({"if-match"})
        store = f"storage: s3://{bucket}/jobs\nstore: {{endpoint_url: '{proxy.endpoint_url}'}}\n"
        writes = SparklessJob.create(tmp_path / "writes", {"storage: ../store\n": store})
        another_process()
        for job in (writes, reads):
            with wording.raises(EnvironmentUnusable):
                require_stores(job.context)


@pytest.mark.parametrize(
    "broken",
    [
        "closed",
        "a folder for a mark",
        *(pytest.param(one, marks=pytest.mark.deep) for one in ("no folder", "a file", "a loop of links")),
    ],
)
def test_without_a_folder_for_marks_each_process_probes(
    broken: str, server: Ministack, tmp_path: Path, another_process: Callable[[], None]
) -> None:
    """The mark is only an optimization. Its errors neither fail a job nor make a store trusted."""
    with RecordingProxy(server.port) as proxy:
        job, _ = job_on(server, tmp_path, proxy.endpoint_url, "lake")
        require_stores(job.context)
        first, folder = len(proxy.requests), tmp_path / "cache" / "milepost" / "stores-1"
        (mark,) = marks(tmp_path)
        mark.unlink()
        if broken == "a folder for a mark":
            (mark / "full").mkdir(parents=True)
            os.utime(mark, times=(0, 0))
        elif broken == "a loop of links":
            mark.symlink_to(mark)
        else:
            folder.rmdir()
        if broken == "a file":
            folder.touch()
        elif broken == "closed":
            folder.symlink_to("/proc/self")
        another_process()
        require_stores(job.context)
        another_process()
        proxy.dropped_headers = frozenset({"if-none-match"})
        if broken == "no folder":
            assert len(proxy.requests) == 2 * first and marks(tmp_path), "it is made anew"
        elif broken != "a folder for a mark":
            with pytest.raises(EnvironmentUnusable):
                require_stores(job.context)


def test_trust_of_several_locations_expires_separately(tmp_path: Path, another_process: Callable[[], None]) -> None:
    first, second, third = (("http://s3", "", bucket) for bucket in ("a", "b", "c"))
    store_checks._trust(first, store_checks._Guarantee.WRITES)
    store_checks._trust(second, store_checks._Guarantee.READS)
    another_process()
    assert store_checks._is_trusted(first, store_checks._Guarantee.WRITES)
    assert store_checks._is_trusted(second, store_checks._Guarantee.READS)
    for mark in marks(tmp_path):
        os.utime(mark, times=(0, 0))
    store_checks._trust(third, store_checks._Guarantee.WRITES)
    assert len(marks(tmp_path)) == 1
    another_process()
    assert not store_checks._is_trusted(first, store_checks._Guarantee.WRITES)


def test_a_source_without_objects_does_not_prevent_probing_other_sources(server: Ministack, tmp_path: Path) -> None:
    with RecordingProxy(server.port, dropped_headers=frozenset({"if-match"})) as proxy:
        job, bucket = job_on(server, tmp_path, proxy.endpoint_url, "landing")
        spec = job.folder / "config" / "small.yaml"
        rows = "  rows:\n    format: csv\n    path: s3://{}/in/*.csv\n    schema: {{k: int64, v: string}}\n"
        empty = rows.format(server.new_bucket()).replace("rows:", "empty:")
        also = "  - {uid: others, kind: deduplicate, inputs: [empty], key: [k]}\n"
        sink = "  - {name: others, input: others, format: parquet, path: ../lake/others, mode: append}\n"
        more = {"sources:\n": f"sources:\n{empty}", "sinks:\n": f"{also}sinks:\n{sink}"}
        edit_spec(spec, more)
        server.client.put_object(Bucket=bucket, Key="in/a.csv", Body=b"k,v\n")
        with wording.raises(EnvironmentUnusable):
            require_stores(job.context)


def test_a_new_process_waits_only_until_its_deadline_for_a_trusted_store_that_hangs(
    tmp_path: Path, another_process: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe within the hour does not mean that the store answers now."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setattr("milepost.storage.s3.probe._ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        store = f"storage: s3://lake/jobs\nstore: {{endpoint_url: '{endpoint}'}}\n"
        job = SparklessJob.create(tmp_path, {"storage: ../store\n": store})
        store_checks._trust(store_checks._place(job.context.store_config), store_checks._Guarantee.WRITES)
        another_process()
        with wording.raises(StoreUnavailable) as refused:
            head_within_deadline(job.context)
        assert endpoint in str(refused.value)
