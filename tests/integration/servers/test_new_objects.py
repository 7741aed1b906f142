"""The queue that a bucket tells of new objects: what waits is taken together, what was not deleted comes again."""

from __future__ import annotations

import os

import pytest

from milepost.protocol.records.errors import StoreUnavailable
from milepost.protocol.records.object_store import Credentials
from milepost.storage.s3_queue import NewObjectsQueue
from tests.harness.servers.processes import free_ports
from tests.harness.servers.s3_servers import Ministack

REGION = "us-east-1"


@pytest.fixture
def credentials(ministack: Ministack) -> Credentials:
    return Credentials(ministack.access_key, ministack.secret_key)


def test_all_messages_that_wait_are_one_reason_and_are_gone_once_they_are_deleted(
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
    with pytest.raises(StoreUnavailable, match=f"queue {url} could not be emptied of what was seen"):
        NewObjectsQueue(url, credentials, REGION).delete(["no receipt"])


@pytest.mark.parametrize("what", ["no queue", "no server"])
def test_a_queue_that_cannot_be_read_is_named(ministack: Ministack, credentials: Credentials, what: str) -> None:
    place = ministack.endpoint_url if what == "no queue" else f"http://127.0.0.1:{free_ports(1)[0]}"
    url = f"{place}/000000000000/nowhere"
    with pytest.raises(StoreUnavailable, match=f"queue {url} could not be read") as refused:
        NewObjectsQueue(url, credentials, REGION).receive()
    assert credentials.secret_key not in str(refused.value)


def test_a_queue_of_no_known_region_is_refused_and_none_is_guessed(
    credentials: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(StoreUnavailable, match=r"could not be opened \(NoRegionError\)"):
        NewObjectsQueue("https://queues.example/000000000000/landing", credentials)
    NewObjectsQueue("https://sqs.eu-west-1.amazonaws.com/000000000000/landing", credentials)
