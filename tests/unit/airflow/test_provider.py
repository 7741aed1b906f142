"""What the provider brings to Airflow: kinds of Connection, assets of sinks, the link to a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import Asset, Connection
from airflow.sdk._shared.module_loading import import_string
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

from milepost.airflow.connections import airflow_connection
from milepost.airflow.operators.checkpoint_link import CheckpointLink
from milepost.airflow.provider import get_provider_info
from milepost.airflow.provider.hooks import SparkHook
from milepost.jobspec.job.connections import Connection as LookedUp
from milepost.jobspec.job.connections import s3_access, spark_server
from milepost_testkit import wording
from milepost_testkit.airflow.task_runs import InProcessRun
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import free_ports
from tests.unit.airflow.test_task_group import spec_of, team_dag


def test_everything_that_the_provider_names_exists() -> None:
    info = get_provider_info()
    hooks = {one["connection-type"]: import_string(one["hook-class-name"]) for one in info["connection-types"]}
    assert {(hook.conn_type, hook.hook_name) for hook in hooks.values()} == {
        (one["connection-type"], one["hook-name"]) for one in info["connection-types"]
    }
    assert [import_string(name) for name in info["extra-links"]] == [CheckpointLink]
    assert [callable(import_string(one["handler"])) for one in info["asset-uris"]] == [True]


def test_airflow_offers_the_kinds_of_connection_in_its_form() -> None:
    shown = ProvidersManagerTaskRuntime().hooks
    assert {"milepost_s3", "milepost_spark"} <= set(shown)
    assert not [conn_type for conn_type in ("milepost_s3", "milepost_spark") if shown[conn_type] is None]


@pytest.mark.parametrize(
    ("theirs", "ours", "rest", "read"),
    [
        ("aws", "milepost-s3", "a:b@", s3_access),
        ("spark-connect", "milepost-spark", ":the-secret-of-a-kind@host", spark_server),
    ],
)
def test_a_kind_of_connection_says_the_same_as_that_of_another_provider(
    theirs: str, ours: str, rest: str, read: Callable[[LookedUp], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", f"{theirs}://{rest}")
    said = read(airflow_connection("lake"))
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", f"{ours}://{rest}")
    assert read(airflow_connection("lake")) == said


def test_the_test_button_says_that_no_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_ports(1)[0]
    monkeypatch.setenv("AIRFLOW_CONN_HERE", f"milepost-spark://:the-secret-of-a-server@localhost:{port}")
    assert isinstance(Connection.get("here").get_hook(), SparkHook)
    ok, says = Connection.get("here").test_connection()
    assert (ok, f"sc://localhost:{port}" in says) == (False, True)
    assert "here" in says and "the-secret-of-a-server" not in says
    wording.matches("connection", says)


@pytest.mark.parametrize("uri", ["milepost://flights/carriers", "milepost://a-job/a_sink"])
def test_the_asset_of_a_sink_is_of_a_job_and_a_sink(uri: str) -> None:
    assert Asset(uri).uri == uri


@pytest.mark.parametrize(
    "uri", ["milepost://flights", "milepost://Flights/carriers", "milepost://a/b/c", "milepost://a/b?c=d"]
)
def test_an_asset_that_names_no_sink_is_refused(uri: str) -> None:
    with wording.raises(ValueError):
        Asset(uri)


def test_a_task_s_link_leads_to_its_checkpoint(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    run = InProcessRun(team_dag(spec_of(job)))
    told: dict[str, Any] = {}
    monkeypatch.setattr(
        "airflow.sdk.execution_time.xcom.XCom.get_one",
        lambda key, dag_id, task_id, run_id: told.get(task_id),
    )
    task = run.dag.get_task("small.run_epoch")
    (link,) = task.operator_extra_links
    assert link.get_link(task, ti_key=run.run) == "/milepost/jobs/ours/checkpoints?job=small"
    told["small.trigger_checkpoint"] = run.execute("small.trigger_checkpoint")
    assert link.get_link(task, ti_key=run.run) == "/milepost/jobs/ours/checkpoints/1?job=small"
