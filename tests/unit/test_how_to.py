"""The how-to's do as they are written: their code is run, their specs are read."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from airflow.sdk import DAG, Asset, AssetAny

from milepost.airflow.dags.dag_factory import airflow_schedule
from milepost.jobmaster import CheckpointDetails, JobMaster, Session
from milepost.jobspec.job.connections import parse_connection, s3_access, spark_server
from milepost.jobspec.job.spec import ScheduleSpec
from milepost.jobspec.load.document import read_document
from milepost.jobspec.load.load import load_job
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.postgres_server import Database

OWN_AIRFLOW = (REPOSITORY / "docs" / "how-to" / "own-airflow.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", OWN_AIRFLOW, re.S)


def dags_of(folder: Path, code: str) -> dict[str, DAG]:
    """The DAGs of a DAG file with this code."""
    file = folder / "ours.py"
    file.write_text(code)
    namespace: dict[str, Any] = {"__file__": str(file), "__name__": "ours"}
    exec(compile(code, str(file), "exec"), namespace)
    return {value.dag_id: value for value in namespace.values() if isinstance(value, DAG)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a DAG file, with a job next to it."""
    job = SparklessJob.create(tmp_path / "job")
    (tmp_path / "jobs").mkdir()
    text = (job.folder / "config" / "small.yaml").read_text()
    (tmp_path / "jobs" / "visits.yaml").write_text(text.replace("name: small", "name: visits"))
    return tmp_path


def test_the_dag_file_of_three_lines_has_two_dags_of_each_job(folder: Path) -> None:
    code = blocks("python")[0]
    assert len(code.strip().splitlines()) == 3 and all(word in code for word in ("airflow", "dag"))
    ids = {f"visits__{name}" for name in ("epoch", "operate")}
    assert dags_of(folder, code).keys() == ids


def test_the_epoch_among_other_tasks_is_between_them(folder: Path) -> None:
    dag = dags_of(folder, blocks("python")[1])["nightly"]
    assert dag.get_task("report").upstream_task_ids == {"visits.subsume", "visits.trigger_checkpoint"}
    assert dag.get_task("land").downstream_task_ids == {"visits.trigger_checkpoint"}


def test_the_schedules_by_assets_are_valid() -> None:
    by_one, by_queue, _ = blocks("yaml")
    by_any = re.findall(r"`(schedule: \{any_of.*?\})`", OWN_AIRFLOW)
    schedules = [read_document(text).value["schedule"] for text in (by_one, *by_any, by_queue)]
    *made, watched = [airflow_schedule(ScheduleSpec.model_validate(one)) for one in schedules]
    visits, orders = Asset("s3://lake/visits"), Asset("s3://landing/orders")
    assert made == [AssetAny(visits), AssetAny(visits, orders)]
    assert isinstance(watched, AssetAny) and len(watched.objects[0].watchers) == 1


def test_both_dags_notify_the_recipients_of_the_how_to(folder: Path) -> None:
    spec = folder / "jobs" / "visits.yaml"
    spec.write_text(spec.read_text() + blocks("yaml")[2])
    made = dags_of(folder, blocks("python")[0])
    assert [len(dag.on_failure_callback) for dag in made.values()] == [1, 1]


def test_the_connections_of_the_how_to_are_followed() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "connections.md").read_text(encoding="utf-8")
    spec = read_document(re.findall(r"```yaml\n(.*?)```", page, re.S)[0]).value
    exported = dict(re.findall(r"export AIRFLOW_CONN_(\w+)='(.*)'", page))
    assert {spec["store"]["conn_id"], spec["spark"]["conn_id"]} == {name.lower() for name in exported}
    assert s3_access(parse_connection("lake", exported["LAKE"])).region == "eu-west-1"
    server = spark_server(parse_connection("spark_here", exported["SPARK_HERE"]))
    assert (server.url, server.tls, server.token) == ("sc://localhost:15010", False, "TOKEN")


class _Readings(BaseHTTPRequestHandler):
    """An API that returns the readings after a number."""

    readings: ClassVar[list[dict[str, Any]]] = []

    def do_GET(self) -> None:
        after = int(self.path.rpartition("=")[2])
        body = json.dumps([one for one in self.readings if one["number"] > after]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Be silent."""


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The readings of an API whose address the page's spec takes from the environment."""
    monkeypatch.setattr(_Readings, "readings", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), _Readings) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("READINGS_URL", f"http://127.0.0.1:{server.server_address[1]}/readings")
        yield _Readings.readings
        server.shutdown()


@pytest.mark.deep
def test_the_class_and_the_spec_of_a_landed_source_work_as_written(
    tmp_path: Path, readings: list[dict[str, Any]]
) -> None:
    page = (REPOSITORY / "docs" / "how-to" / "land-a-source.md").read_text(encoding="utf-8")
    (code,), (spec,) = (re.findall(rf"```{language}\n(.*?)```", page, re.S) for language in ("python", "yaml"))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "feeds.py").write_text(code)
    (tmp_path / "config" / "sensors.yaml").write_text(spec)
    master = JobMaster(load_job(str(tmp_path / "config" / "sensors.yaml")))
    for batch in ([("a", 20.5), ("b", 18.0)], [("a", 22.5)]):
        readings += [
            {"sensor": sensor, "celsius": celsius, "number": len(readings) + at}
            for at, (sensor, celsius) in enumerate(batch, 1)
        ]
        report = master.landings.land()
        assert ([one.rows for one in report.landed], report.failed) == ([len(batch)], ())
        assert isinstance(master.epochs.run(Session.cli(), SparklessRunner()), CheckpointDetails)
    assert [one.records for one in master.landings.land().landed] == [0]
    hottest = master.reports.read("hottest").select(["sensor", "celsius", "readings"]).sort_by("sensor").to_pylist()
    assert [tuple(row.values()) for row in hottest] == [("a", 22.5, 2), ("b", 18.0, 1)]


@pytest.mark.deep
def test_the_page_about_postgres_replicates_a_table_as_written(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (REPOSITORY / "docs" / "how-to" / "read-postgres.md").read_text(encoding="utf-8")
    prepare, *_ = re.findall(r"```sql\n(.*?)```", page, re.S)
    (spec,) = re.findall(r"```yaml\n(.*?)```", page, re.S)
    database.run("CREATE TABLE customers (id bigint PRIMARY KEY, name text, paid numeric(12, 2), note text)")
    database.run("INSERT INTO customers VALUES (1, 'Ada', 1.5, 'old'), (2, 'Barbara', 2, NULL)")
    for statement in prepare.strip().split("\n"):
        database.run_as_superuser(re.sub(r"\bmilepost\b(?!_)", f'"{database.user}"', statement))
    monkeypatch.setenv("SHOP_DSN", database.dsn)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "shop.yaml").write_text(spec)
    master = JobMaster(load_job(str(tmp_path / "config" / "shop.yaml")))
    for changes in ((), ("UPDATE customers SET paid = 9 WHERE id = 1", "DELETE FROM customers WHERE id = 2")):
        for change in changes:
            database.run(change)
        report = master.landings.land()
        assert ([one.rows for one in report.landed], report.failed) == ([2], ())
        assert isinstance(master.epochs.run(Session.cli(), SparklessRunner()), CheckpointDetails)
        rows = master.reports.read("customers").select(["id", "name", "paid", "note"]).sort_by("id").to_pylist()
        assert [tuple(row.values()) for row in rows] == database.run("SELECT * FROM customers ORDER BY id")


def test_the_source_of_the_page_about_kafka_is_valid(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "how-to" / "read-kafka.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```yaml\n(.*?)```", page, re.S)
    sinks = "sinks: [{name: clicks, input: clicks, format: parquet, path: lake, mode: append}]\n"
    (tmp_path / "clicks.yaml").write_text(f"name: clicks\nstorage: store\n{source}{sinks}")
    loaded = load_job(tmp_path / "clicks.yaml")
    assert list(loaded.spec.landed) == ["clicks"] and loaded.graph()
