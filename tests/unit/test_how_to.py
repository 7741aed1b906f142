"""The how-to's do as they are written: their code is run, their specs are read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetAny

from milepost.airflow.dags.dag_factory import airflow_schedule
from milepost.jobspec.job.connections import parse_connection, s3_access, spark_server
from milepost.jobspec.job.spec import ScheduleSpec
from milepost.jobspec.load.document import read_document
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import REPOSITORY

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
    """The folder of a DAG file, with a job beside it."""
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


def test_whom_the_how_to_has_told_is_told_by_both_dags(folder: Path) -> None:
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
