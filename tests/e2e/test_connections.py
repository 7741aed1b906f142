"""A job in Airflow whose store and Spark server are Connections that Airflow keeps."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.harness.servers.airflow_instance import AirflowInstance, E2eJob
from tests.harness.servers.s3_servers import Seaweed

LAKE, SPARK = "lake", "spark_here"
STORE = "store: {conn_id: lake}\n"


def add_connections(airflow: AirflowInstance, seaweed: Seaweed) -> None:
    """As a person adds them, under Admin, Connections: both are in Airflow's database and nowhere else."""
    host, _, port = airflow.stack.spark_url.removeprefix("sc://").partition(":")
    keys = {"login": seaweed.access_key, "password": seaweed.secret_key}
    lake = {"conn_type": "aws", **keys, "extra": json.dumps({"endpoint_url": seaweed.endpoint_url})}
    spark = {"conn_type": "spark_connect", "host": host, "port": int(port), "password": airflow.stack.spark_token}
    for conn_id, about in ((LAKE, lake), (SPARK, spark)):
        airflow.rest.ask("POST", "/connections", json={"connection_id": conn_id, **about})


def test_a_run_reaches_store_and_spark_by_airflow_s_connections_and_logs_and_xcoms_have_no_secret(
    airflow: AirflowInstance, seaweed: Seaweed
) -> None:
    """The Spark server has other credentials, which this store refuses."""
    add_connections(airflow, seaweed)
    bucket = seaweed.new_bucket()
    places = {name: f"s3://{bucket}/{name}" for name in ("storage", "landing", "lake")}
    job = airflow.add_job("connected", more=STORE, **places, spark=f"conn_id: {SPARK}")
    seaweed.client.put_object(Bucket=bucket, Key="landing/a.csv", Body=b"carrier,delay\nAA,5\n")

    run_id, state = job.run()

    assert state == "success"
    tables = [one["Key"] for one in seaweed.client.list_objects_v2(Bucket=bucket, Prefix="lake/")["Contents"]]
    assert any(key.endswith(".parquet") for key in tables)
    texts = [*said_of(job, run_id), page(airflow, job.dag_id)]
    assert "epoch 1 is planned" in texts[0] and "Checkpoints of connected" in texts[-1] and "JobCreated" in texts[-1]
    for secret in (seaweed.access_key, seaweed.secret_key, airflow.stack.spark_token):
        assert not [text for text in texts if secret in text]


def said_of(job: E2eJob, run_id: str) -> list[str]:
    """What the tasks of a run logged, and what each left for the next ones."""
    tasks = [task for task in job.airflow.rest.tasks(job.dag_id, run_id) if task["state"] == "success"]
    logs = [job.log(run_id, task["task_id"], map_index=task["map_index"]) for task in tasks]
    of_run = f"/dags/{job.dag_id}/dagRuns/{run_id}/taskInstances"
    left = [job.airflow.rest.ask("GET", f"{of_run}/{task['task_id']}/xcomEntries") for task in tasks]
    values = [
        job.airflow.rest.ask("GET", f"{of_run}/{entry['task_id']}/xcomEntries/{entry['key']}", params=of_index(entry))
        for entries in left
        for entry in entries["xcom_entries"]
    ]
    return [*logs, *map(json.dumps, values)]


def of_index(entry: dict[str, Any]) -> dict[str, Any]:
    return {"map_index": entry["map_index"]}


def page(airflow: AirflowInstance, dag_id: str) -> str:
    """The Checkpoints page of a DAG, which the API server makes."""
    url = f"{airflow.stack.airflow_url}/milepost/checkpoints/{dag_id}"
    answer = httpx.get(url, headers=airflow.rest.authorization(), trust_env=False, timeout=60)
    return answer.raise_for_status().text
