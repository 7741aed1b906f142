"""The queue that a bucket tells of new objects: what waits is taken together, what was not deleted comes again."""

from __future__ import annotations

import asyncio
import os

import pytest
from airflow.sdk.exceptions import AirflowSecretsBackendAccessDenied
from airflow.triggers.shared_stream import AdvanceItem, AdvanceOutcome

from milepost.airflow.provider import new_objects
from milepost.airflow.provider.new_objects import WatchedQueue
from milepost.errors import EnvironmentUnusable, StoreUnavailable
from milepost.jobspec.job.connections import Connection, connection_of
from milepost.protocol.records.object_store import Credentials
from milepost.storage.s3.queue import NewObjectsQueue
from milepost_testkit import wording
from milepost_testkit.processes.processes import free_ports
from milepost_testkit.servers.s3_servers import Ministack

REGION = "us-east-1"


@pytest.fixture
def credentials(ministack: Ministack) -> Credentials:
    return Credentials(ministack.access_key, ministack.secret_key)


def test_all_waiting_messages_are_one_reason_and_none_remains_after_their_deletion(
    ministack: Ministack, credentials: Credentials
) -> None:
    url = ministack.queues.create_queue(QueueName="many", Attributes={"VisibilityTimeout": "1"})["QueueUrl"]
    for number in range(23):
        ministack.queues.send_message(QueueUrl=url, MessageBody=f"object {number}")
    queue = NewObjectsQueue(url, credentials, REGION)
    seen = queue.receive()
    assert len(seen) == 23
    queue.delete(seen[:20])
    again = queue.receive()
    assert len(again) == 3, "those that were not deleted come again"
    queue.delete(again)
    attributes = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    left = ministack.queues.get_queue_attributes(QueueUrl=url, AttributeNames=attributes)["Attributes"]
    assert set(left.values()) == {"0"}


def test_a_message_that_could_not_be_deleted_is_not_passed_over(ministack: Ministack, credentials: Credentials) -> None:
    url = ministack.queues.create_queue(QueueName="refusing")["QueueUrl"]
    with wording.raises(StoreUnavailable) as refused:
        NewObjectsQueue(url, credentials, REGION).delete(["no receipt"])
    assert url in str(refused.value)


def test_a_watched_queue_goes_on_after_faults_and_its_messages_go_once_their_events_are_kept(
    ministack: Ministack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure between two messages is retried; messages that were handled before are deleted all the same."""
    url = ministack.queues.create_queue(QueueName="watched")["QueueUrl"]
    keys = {"login": ministack.access_key, "password": ministack.secret_key}
    faults: list[Exception] = [AirflowSecretsBackendAccessDenied("not yours"), EnvironmentUnusable("not there yet")]

    async def look_up(conn_id: str) -> Connection:
        if faults:
            raise faults.pop()
        return connection_of(conn_id, {"conn_type": "aws", **keys, "extra": {"region_name": "us-east-1"}})

    async def watch() -> None:
        watched = WatchedQueue(queue_url=url, conn_id="lake")
        stream = watched.open_stream()
        ministack.queues.send_message(QueueUrl=url, MessageBody="an object")
        messages, receipts = await anext(stream)
        await watched.advance([AdvanceItem(receipts, AdvanceOutcome(acked=1, failed=0))])
        ministack.queues.send_message(QueueUrl=url, MessageBody="another")
        assert (messages, (await anext(stream))[0], faults) == (1, 1, [])

    monkeypatch.setattr(new_objects, "PAUSE_S", 0.0)
    monkeypatch.setattr(new_objects, "async_airflow_connection", look_up)
    asyncio.run(watch())


@pytest.mark.parametrize("what", ["no queue", "no server"])
def test_a_queue_that_cannot_be_read_is_named(ministack: Ministack, credentials: Credentials, what: str) -> None:
    place = ministack.endpoint_url if what == "no queue" else f"http://127.0.0.1:{free_ports(1)[0]}"
    url = f"{place}/000000000000/nowhere"
    with wording.raises(StoreUnavailable) as refused:
        NewObjectsQueue(url, credentials, REGION).receive()
    assert url in str(refused.value)
    assert credentials.secret_key not in str(refused.value)


def test_a_queue_of_no_known_region_is_refused_and_none_is_guessed(
    credentials: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with wording.raises(StoreUnavailable):
        NewObjectsQueue("https://queues.example/000000000000/landing", credentials)
    NewObjectsQueue("https://sqs.eu-west-1.amazonaws.com/000000000000/landing", credentials)
