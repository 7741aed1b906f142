"""A job whose store and Spark server are Connections: only its tasks get the credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from milepost.protocol.records.object_store import ObjectStore
from milepost.storage.open import open_store
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost, milepost_process
from milepost_testkit.jobs.connected_job import ConnectedJob, lake_connection
from milepost_testkit.processes.processes import free_ports
from milepost_testkit.servers.connect_server import ConnectServer, connect_server
from milepost_testkit.servers.s3_servers import Seaweed


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[ConnectServer]:
    """A Spark server with Spark's UI and event log."""
    (tmp_path / "events").mkdir()
    events = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": (tmp_path / "events").as_uri()}
    ui = {"spark.ui.enabled": "true", "spark.ui.port": str(free_ports(1)[0])}
    with connect_server(tmp_path / "server", events | ui) as server:
        yield server


@pytest.fixture
def connect(
    seaweed: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[ConnectServer], ConnectedJob]:
    """Makes a job that finds its store and a Spark server by Connections. The server has no credentials of a store."""

    def connected(server: ConnectServer) -> ConnectedJob:
        for name, value in lake_connection(seaweed).items():
            monkeypatch.setenv(name, value)
        spark = f"spark-connect://:{server.stack.spark_token}@{server.remote.removeprefix('sc://')}"
        monkeypatch.setenv("AIRFLOW_CONN_SPARK", spark)
        return ConnectedJob.connected(tmp_path / "job", seaweed, "spark: {conn_id: spark")

    return connected


@pytest.mark.deep
def test_only_an_epoch_s_tasks_have_the_credentials_of_its_connection(
    connect: Callable[[ConnectServer], ConnectedJob], observed: ConnectServer, seaweed: Seaweed
) -> None:
    """Not the plan, nor a log, Spark's UI and event log, a checkpoint, or what a command says (TABLES 1.15)."""
    server, job = observed, connect(observed)
    job.land([1, 2])
    ran = milepost_process("run", job.spec_path, "-v")
    assert ran.exit_code == 0, ran.stderr
    job.assert_tables_equal_the_oracle()
    words = (["show", "--json"], ["show", "--spec"], ["status"], ["history", "--json"], ["lint", "--json"], ["doctor"])
    said = [ran, *(milepost(command, job.spec_path, *options) for command, *options in words)]
    assert [one.exit_code for one in said] == [0] * len(said)
    folders = (server.folder, server.folder.parent / "events")
    own = [file for one in folders for file in one.rglob("*") if file.is_file() and file.name != "spark-token"]
    texts = [
        *(f"{one.stdout}{one.stderr}".encode() for one in said),
        *shown_by_spark(server),
        *(file.read_bytes() for file in own),
        *(store.get(stat.key) for store in stores_of(job) for stat in store.list("")),
    ]
    assert any(b"mapInArrow" in text or b"MapInArrow" in text for text in texts), "Spark shows what it ran"
    for secret in (seaweed.access_key, seaweed.secret_key, server.stack.spark_token):
        assert not [text for text in texts if secret.encode() in text]


def shown_by_spark(server: ConnectServer) -> Iterator[bytes]:
    """Yield what Spark's UI says of the server and all it ran."""
    url = f"http://127.0.0.1:{server.stack.spark['spark.ui.port']}"
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as ui:
        (application,) = ui.get("/api/v1/applications").json()
        of_it = f"/api/v1/applications/{application['id']}"
        for page in ("/connect/", "/SQL/", "/environment/", f"{of_it}/sql?details=true", f"{of_it}/jobs"):
            yield ui.get(page).raise_for_status().content


def stores_of(job: ConnectedJob) -> list[ObjectStore]:
    context = job.master().context
    return [context.store, *(open_store(context.sink_config(sink.name)) for sink in context.spec.sinks)]


@pytest.mark.deep
def test_wrong_credentials_name_the_connection_and_lose_nothing(
    connect: Callable[[ConnectServer], ConnectedJob], spark_connect: ConnectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = connect(spark_connect)
    job.land([1, 2])
    with monkeypatch.context() as wrong:
        wrong.setenv("AIRFLOW_CONN_LAKE", f"aws://somebody:a-wrong-secret@/?endpoint_url={job.objects.endpoint_url}")
        refused = milepost("run", job.spec_path)
        assert_clear_error(refused, 8, "Connection lake", golden="run")
        assert "a-wrong-secret" not in refused.stderr
    with monkeypatch.context() as wrong:
        address = spark_connect.remote.removeprefix("sc://")
        wrong.setenv("AIRFLOW_CONN_SPARK", f"spark-connect://:a-wrong-token@{address}")
        refused = milepost("run", job.spec_path)
        assert_clear_error(refused, 8, "Connection spark", golden="run")
    assert milepost("run", job.spec_path).exit_code == 0
    job.assert_tables_equal_the_oracle()
