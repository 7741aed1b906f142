"""An epoch that starts because objects have landed: the bucket tells a queue, the triggerer watches it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.servers.airflow_instance import AirflowInstance
from tests.harness.servers.s3_servers import Ministack


@pytest.fixture
def triggerer(airflow: AirflowInstance) -> Iterator[None]:
    airflow.stack.start_service("triggerer")
    airflow.until(lambda: airflow.rest.is_healthy("triggerer"), "the triggerer is up")
    yield
    airflow.stack.stop("triggerer")


def test_objects_that_land_start_an_epoch_and_their_messages_are_taken_off_the_queue(
    airflow: AirflowInstance, ministack: Ministack, triggerer: None
) -> None:
    """Airflow keeps an asset's event in its database before the messages that made it are deleted."""
    bucket = ministack.new_bucket()
    queue = ministack.queues.create_queue(QueueName=bucket, Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    arn = ministack.queues.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    told = {"QueueConfigurations": [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"], "Filter": below("landing/")}]}
    ministack.client.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=told)
    lake = {"conn_type": "milepost_s3", "login": ministack.access_key, "password": ministack.secret_key}
    extra = json.dumps({"endpoint_url": ministack.endpoint_url})
    airflow.rest.ask("POST", "/connections", json={"connection_id": "landing", **lake, "extra": extra})
    places = {name: f"s3://{bucket}/{name}" for name in ("storage", "landing", "lake")}
    more = f"store: {{conn_id: landing}}\nschedule: {{sqs: {queue}}}\n"
    job = airflow.add_job("woken", more=more, **places)

    airflow.parsed_until(lambda: is_watched(airflow, queue), "the queue is watched")

    for name in ("a", "b"):
        ministack.client.put_object(Bucket=bucket, Key=f"landing/{name}.csv", Body=b"carrier,delay\nAA,5\n")

    (first, *_) = airflow.until(lambda: job.finished_runs(1), "the run that the objects have started")
    assert (first["run_type"], first["state"]) == ("asset_triggered", "success")
    attributes = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]

    def left() -> list[str]:
        about = ministack.queues.get_queue_attributes(QueueUrl=queue, AttributeNames=attributes)
        return list(about["Attributes"].values())

    airflow.until(lambda: left() == ["0", "0"], "no message is left")
    (event,) = airflow.rest.ask("GET", "/assets/events", params={"source_dag_id": None})["asset_events"][:1]
    assert event["extra"]["payload"]["queue"] == queue
    tables = ministack.client.list_objects_v2(Bucket=bucket, Prefix="lake/")["Contents"]
    assert any(one["Key"].endswith(".parquet") for one in tables)


def is_watched(airflow: AirflowInstance, queue: str) -> bool:
    """Airflow gives an asset its watcher when it parses its DAG once more: it must know the asset before."""
    (asset,) = [one for one in airflow.rest.ask("GET", "/assets")["assets"] if one["uri"] == queue]
    return bool(asset["watchers"])


def below(prefix: str) -> dict[str, Any]:
    return {"Key": {"FilterRules": [{"Name": "prefix", "Value": prefix}]}}
