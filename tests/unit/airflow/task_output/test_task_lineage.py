"""The tasks of one DAG run send the events of one run, below the DAG run that Airflow's own provider would name."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk.execution_time.context import set_current_context

from milepost.airflow.task_output.openlineage import lineage_settings
from milepost.openlineage.settings import settings_or_none
from milepost_testkit import wording
from milepost_testkit.airflow.task_runs import run_epoch_tasks
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.servers.lineage_receiver import LineageReceiver
from milepost_testkit.servers.lineage_schemas import assert_valid

DUE = datetime(2026, 11, 25, 10, 30, tzinfo=UTC)
RUN = SimpleNamespace(dag_id="small__epoch", run_id="scheduled__1", run_type="scheduled", logical_date=DUE,
                      run_after=DUE, clear_number=2)  # fmt: skip


def of_the_provider(namespace: str) -> str:
    """The id that Airflow's OpenLineage provider gives the DAG run: a UUIDv7 of its logical date and a digest."""
    digest = hashlib.sha1(f"{DUE.isoformat()}{namespace}.small__epoch.2".encode()).digest()
    node = int.from_bytes(digest) >> 84
    value = round(DUE.timestamp() * 1000) << 80 | 7 << 76 | (node & ~(0xF000 << 64)) & ((1 << 80) - 1)
    return str(uuid.UUID(int=value & ~(0xC000 << 48) | 0x8000 << 48))


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LineageReceiver]:
    """Said in Airflow's own section, where its provider has it from."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with LineageReceiver().serving() as server:
        monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps({"type": "http", "url": server.url}))
        monkeypatch.setenv("AIRFLOW__OPENLINEAGE__NAMESPACE", "prod")
        yield server
    for event in server.events:
        assert_valid(event)


def run_epoch_dag(job: SparklessJob) -> None:
    run_epoch_tasks(job.folder / "config" / "small.yaml", RUN, "file:///lake")


@pytest.mark.deep
def test_the_tasks_of_an_epoch_are_one_run_below_their_dag_run(
    receiver: LineageReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SparklessJob.create(tmp_path / "job")
    job.land("a.csv", "k,v\n1,x\n2,y\n")
    run_epoch_dag(job)
    start, complete = receiver.wait_for(2)
    assert [start["eventType"], complete["eventType"]] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    for event in (start, complete):
        parent = event["run"]["facets"]["parent"]
        assert (parent["job"]["namespace"], parent["job"]["name"]) == ("prod", "small__epoch")
        assert parent["run"]["runId"] == of_the_provider("prod")
    assert start["run"]["facets"]["nominalTime"]["nominalStartTime"] == DUE.isoformat()


def test_airflows_section_says_whether_and_by_what_file(
    receiver: LineageReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with set_current_context({"dag_run": RUN}):  # type: ignore[typeddict-item]
        monkeypatch.setenv("AIRFLOW__OPENLINEAGE__DISABLED", "True")
        assert lineage_settings() is None
        monkeypatch.setenv("AIRFLOW__OPENLINEAGE__DISABLED", "perhaps")
        assert settings_or_none(lineage_settings) is None, "what cannot be read fails no task"
        monkeypatch.setenv("AIRFLOW__OPENLINEAGE__DISABLED", "False")
        file = tmp_path / "lineage.yml"
        file.write_text("transport: {type: console}\n")
        monkeypatch.setenv("AIRFLOW__OPENLINEAGE__CONFIG_PATH", str(file))
        settings = lineage_settings()
        assert settings is not None and settings.config == {"transport": {"type": "console"}}
        monkeypatch.delenv("AIRFLOW__OPENLINEAGE__CONFIG_PATH")
        monkeypatch.delenv("AIRFLOW__OPENLINEAGE__TRANSPORT")
        assert lineage_settings() is None


def test_a_configuration_that_is_not_a_mapping_is_logged_and_nothing_is_sent(
    receiver: LineageReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Airflow's section goes before OpenLineage's own variables: they do not stand in for one that is wrong."""
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
    file = tmp_path / "lineage.yml"
    for text, got in (("- console\n", "list"), ("", "nothing")):
        file.write_text(text)
        monkeypatch.setenv("AIRFLOW__OPENLINEAGE__CONFIG_PATH", str(file))
        assert settings_or_none(lineage_settings) is None
        said = caplog.messages[-1]
        assert str(file) in said and got in said
        wording.matches("lineage", said, replace={rf"{file.parent}\b": "{tmp}"})
    monkeypatch.delenv("AIRFLOW__OPENLINEAGE__CONFIG_PATH")
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", '["http"]')
    assert settings_or_none(lineage_settings) is None
    said = caplog.messages[-1]
    assert "[openlineage] transport" in said and "list" in said
    wording.matches("lineage", said)
