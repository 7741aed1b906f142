"""A job that Airflow's Connections lead to its store and Spark server, and that starts because objects have landed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from milepost_testkit.airflow.airflow_instance import AirflowInstance
from milepost_testkit.airflow.e2e_job import E2eJob, has_line
from milepost_testkit.servers.s3_servers import Ministack

LEFT = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]


class Woken(NamedTuple):
    """A job whose objects are in a bucket that notifies a queue."""

    job: E2eJob
    bucket: str
    queue: str


def woken(airflow: AirflowInstance, request: pytest.FixtureRequest) -> Iterator[Woken | None]:
    ministack: Ministack = request.getfixturevalue("ministack")
    bucket = ministack.new_bucket()
    queue = told_queue(ministack, bucket)
    places = {name: f"s3://{bucket}/{name}" for name in ("storage", "landing", "lake")}
    more = f"store: {{conn_id: lake}}\nschedule: {{sqs: {queue}}}\n"
    job = airflow.write_job("woken", more=more, **places, spark="conn_id: spark_here")
    yield None
    ministack.client.put_object(Bucket=bucket, Key="landing/a.csv", Body=b"carrier,delay\nAA,5\n")
    add_connections(airflow, ministack)
    airflow.stack.start_service("triggerer")
    job.unpause()
    airflow.reparse()
    yield Woken(job, bucket, queue)


@pytest.mark.scenario(begins=woken)
def test_landing_objects_start_an_epoch_through_connections_without_showing_secrets(
    airflow: AirflowInstance, ministack: Ministack, scenario: Woken
) -> None:
    """The bucket tells a queue, which the triggerer watches; a message is deleted once Airflow has the event."""
    job, bucket, queue = scenario
    airflow.parsed_until(lambda: is_watched(airflow, queue), "the queue is watched")
    (first, *_) = airflow.until(lambda: job.finished_runs(1), "the run that the objects have started")
    assert (first["run_type"], first["state"]) == ("asset_triggered", "success")
    airflow.until(lambda: waiting(ministack, queue) == {"0"}, "no message is left")
    tables = ministack.client.list_objects_v2(Bucket=bucket, Prefix="lake/")["Contents"]
    assert any(one["Key"].endswith(".parquet") for one in tables)
    texts = [
        *said_of(job, first["dag_run_id"]),
        airflow.page(f"/milepost/jobs/{job.dag_id}/log").raise_for_status().text,
    ]
    assert has_line(texts[0], "epoch 1") and "created the job" in texts[-1]
    for secret in (ministack.access_key, ministack.secret_key, airflow.stack.spark_token):
        assert not [text for text in texts if secret in text]


def add_connections(airflow: AirflowInstance, server: Ministack) -> None:
    """As a person adds them, under Admin, Connections: they are in Airflow's database and nowhere else."""
    host, _, port = airflow.stack.spark_url.removeprefix("sc://").partition(":")
    keys = {"login": server.access_key, "password": server.secret_key}
    lake = {"conn_type": "milepost_s3", **keys, "extra": json.dumps({"endpoint_url": server.endpoint_url})}
    spark = {"conn_type": "spark_connect", "host": host, "port": int(port), "password": airflow.stack.spark_token}
    for conn_id, about in (("lake", lake), ("spark_here", spark)):
        airflow.rest.create("/connections", {"connection_id": conn_id, **about})


def told_queue(server: Ministack, bucket: str) -> str:
    """Make a queue that a bucket tells of new objects of its landing. Returns its URL."""
    queue: str = server.queues.create_queue(QueueName=bucket, Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    about = server.queues.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
    landing = {"Key": {"FilterRules": [{"Name": "prefix", "Value": "landing/"}]}}
    told = {"QueueArn": about["QueueArn"], "Events": ["s3:ObjectCreated:*"], "Filter": landing}
    server.client.put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"QueueConfigurations": [told]}
    )
    return queue


def is_watched(airflow: AirflowInstance, queue: str) -> bool:
    """Airflow gives an asset its watcher when it parses its DAG once more: it must know the asset before."""
    (asset,) = [one for one in airflow.rest.request("GET", "/assets")["assets"] if one["uri"] == queue]
    return bool(asset["watchers"])


def waiting(server: Ministack, queue: str) -> set[str]:
    """How many messages are left, of those that can be seen and of those that are being worked on."""
    about = server.queues.get_queue_attributes(QueueUrl=queue, AttributeNames=LEFT)["Attributes"]
    return {about[name] for name in LEFT}


def said_of(job: E2eJob, run_id: str) -> list[str]:
    """What the tasks of a run logged, and what each left for the next ones."""
    tasks = [task for task in job.airflow.rest.tasks(job.dag_id, run_id) if task["state"] == "success"]
    logs = [job.log(run_id, task["task_id"], map_index=task["map_index"]) for task in tasks]
    of_run = f"/dags/{job.dag_id}/dagRuns/{run_id}/taskInstances"
    left = [job.airflow.rest.request("GET", f"{of_run}/{task['task_id']}/xcomEntries") for task in tasks]
    values = [
        job.airflow.rest.request(
            "GET", f"{of_run}/{entry['task_id']}/xcomEntries/{entry['key']}", params=of_index(entry)
        )
        for entries in left
        for entry in entries["xcom_entries"]
    ]
    return [*logs, *map(json.dumps, values)]


def of_index(entry: dict[str, Any]) -> dict[str, Any]:
    return {"map_index": entry["map_index"]}
