"""Topics of a real Kafka broker: transactions, compaction, retention, ids of topics, rights, and its death."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from milepost.errors import CheckpointError, EnvironmentUnusable, PositionExpired, SourceUnreachable, SourceWentBack
from milepost.sources.landed import LandedSource, PartRows, ResumableSource, open_kafka_source
from milepost_testkit.jobs.kafka_landing import KafkaLog
from milepost_testkit.processes.processes import wait_until
from milepost_testkit.servers.kafka_server import KAFKA_IS_NOT_TO_BE_HAD, KafkaServer

pytestmark = pytest.mark.deep
if KAFKA_IS_NOT_TO_BE_HAD:
    pytest.skip("Maven Central was not reached; the last line of `make test-all` says so", allow_module_level=True)


def opened(
    server: KafkaServer, *topics: str, start: str = "earliest", max_rows: int = 1_000, **client: str
) -> LandedSource:
    options = {"bootstrap.servers": server.bootstrap, **client}
    return open_kafka_source("clicks", topics, options, start, max_rows=max_rows, max_bytes=1 << 20, timeout_s=10)


def values(landed: list[tuple[str, int, bytes | None]]) -> list[bytes | None]:
    return [value for _, _, value in landed]


def test_aborted_transactions_are_passed_by_and_open_ones_are_not_reached(kafka: KafkaServer) -> None:
    topic, log = kafka.new_topic(), KafkaLog()
    producer = kafka.producer(transactional_id=topic)
    producer.init_transactions()
    for number, commit in enumerate([True, False, True, False, False]):
        producer.begin_transaction()
        for at in range(20):
            producer.produce(topic, b"%d-%d" % (number, at))
        producer.commit_transaction() if commit else producer.abort_transaction()
    landed = log.land(opened(kafka, topic, max_rows=7))
    assert values(landed) == [b"%d-%d" % (number, at) for number in (0, 2) for at in range(20)]
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush()
    kafka.produce(topic, {0: [b"after the open one"]})
    assert log.land(opened(kafka, topic)) == []
    producer.commit_transaction()
    wait_until(
        lambda: values(log.land(opened(kafka, topic))) == [b"open", b"after the open one"], seconds=20, what="commit"
    )


def test_only_aborted_messages_are_a_landing_without_rows_that_ends_at_once(kafka: KafkaServer) -> None:
    topic, log = kafka.new_topic(), KafkaLog()
    producer = kafka.producer(transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    producer.flush()
    producer.abort_transaction()
    source = opened(kafka, topic)
    assert log.land(source) == []
    kafka.produce(topic, {0: [b"after"]})
    assert values(log.land(opened(kafka, topic))) == [b"after"]


def test_aborted_messages_that_take_longer_than_the_time_limit_are_passed(kafka: KafkaServer) -> None:
    """The consumer delivers none of them, and fetches on all the time."""
    topic = kafka.new_topic()
    producer = kafka.producer(transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(60):
        producer.produce(topic, os.urandom(100_000))
    producer.flush()
    producer.abort_transaction()
    kafka.produce(topic, {0: [b"after"]})
    kafka.limit_reading(f"slow-{topic}", 1_000_000)
    small = {"client.id": f"slow-{topic}", "max.partition.fetch.bytes": "100000"}
    options = {"bootstrap.servers": kafka.bootstrap, **small}
    source = open_kafka_source("clicks", [topic], options, "earliest", max_rows=10, max_bytes=1 << 20, timeout_s=4)
    log = KafkaLog()
    began = time.monotonic()
    assert values(log.land(source)) == [b"after"]
    assert time.monotonic() - began > 4


def test_a_compacted_topic_is_landed_to_its_end(kafka: KafkaServer) -> None:
    topic = kafka.new_topic(cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.001)
    producer = kafka.producer()
    for number in range(500):
        producer.produce(topic, b"%d" % number, key=b"%d" % (number % 10))
    producer.flush()

    def remaining() -> int:
        producer.produce(topic, b"last", key=b"last")  # rolls the segment
        producer.flush()
        return len(KafkaLog().land(opened(kafka, topic)))

    wait_until(lambda: remaining() < 100, seconds=60, what="compaction")
    log = KafkaLog()
    landed = log.land(opened(kafka, topic, max_rows=3))
    assert {b"%d" % number for number in range(490, 500)} <= set(values(landed))
    assert log.next(topic)["0"] > 500 > len(landed)
    assert log.land(opened(kafka, topic)) == []


def test_what_expired_before_it_was_landed_is_an_error(kafka: KafkaServer) -> None:
    topic, log = kafka.new_topic(2), KafkaLog()
    kafka.produce(topic, {0: [b"a"] * 5, 1: [b"b"]})
    log.land(opened(kafka, topic))
    kafka.produce(topic, {0: [b"c"] * 10})
    kafka.admin.delete_records([TopicPartition(topic, 0, 12)])
    wait_until(lambda: _expired(log, kafka, topic), seconds=20, what="deletion of records")


def test_a_log_goes_on_after_expired_messages_at_a_time(kafka: KafkaServer) -> None:
    topic, log = kafka.new_topic(2), KafkaLog()
    kafka.produce(topic, {0: [b"a"], 1: [b"b"]})
    log.land(opened(kafka, topic))
    kafka.produce(topic, {0: [b"c"] * 3})
    between_ms = time.time_ns() // 1_000_000 + 1
    wait_until(lambda: time.time_ns() // 1_000_000 > between_ms, seconds=5, what="a later millisecond")
    kafka.produce(topic, {0: [b"d"] * 2, 1: [b"e"]})
    next(iter(kafka.admin.delete_records([TopicPartition(topic, 0, 2)]).values())).result(30)
    source = opened(kafka, topic)
    assert isinstance(source, ResumableSource)
    log.position = source.resume_position(between_ms, log.position).position
    assert log.next(topic) == {"0": 4, "1": 1}
    assert sorted(values(log.land(opened(kafka, topic)))) == [b"d", b"d", b"e"]


def _expired(log: KafkaLog, kafka: KafkaServer, topic: str) -> bool:
    place = log.next(topic)["0"]
    try:
        log.land(opened(kafka, topic), most=0)
        opened(kafka, topic).next_pull(log.position)
    except CheckpointError as error:
        assert "deleted everything before offset 12: 7 offsets expired" in error.message
        assert log.next(topic)["0"] == place
        return True
    return False


def test_what_expires_between_plan_and_reading_is_an_error(kafka: KafkaServer) -> None:
    topic, log = kafka.new_topic(), KafkaLog()
    kafka.produce(topic, {0: [b"a"] * 10})
    source = opened(kafka, topic)
    position = source.initial_position()
    pull = source.next_pull(position)
    assert pull is not None
    next(iter(kafka.admin.delete_records([TopicPartition(topic, 0, 4)]).values())).result(30)
    with pytest.raises(CheckpointError, match="before offset 4: 4 offsets expired"):
        list(source.read(pull.splits[0]))
    assert [offset for _, offset, _ in log.land(opened(kafka, topic))] == list(range(4, 10))


def test_what_expires_after_it_was_read_is_landed(kafka: KafkaServer) -> None:
    topic = kafka.new_topic()
    kafka.produce(topic, {0: [b"a"] * 10})
    source = opened(kafka, topic)
    pull = source.next_pull(source.initial_position())
    assert pull is not None
    reading = source.read(pull.splits[0])
    rows = next(reading)
    next(iter(kafka.admin.delete_records([TopicPartition(topic, 0, 4)]).values())).result(30)
    assert isinstance(rows, PartRows) and rows.rows.num_rows == 10
    list(reading)


def test_a_recreated_topic_is_refused_until_a_gap_passes_the_lost_messages(kafka: KafkaServer) -> None:
    topic, log = kafka.new_topic(2), KafkaLog()
    kafka.produce(topic, {0: [b"a"] * 3, 1: [b"a"] * 3})
    log.land(opened(kafka, topic))
    kafka.delete_topic(topic)
    with pytest.raises(SourceUnreachable, match=f"no topic {topic}"):
        log.land(opened(kafka, topic))
    kafka.new_topic(name=topic)
    kafka.produce(topic, {0: [b"b"] * 7})  # it reaches beyond the offsets that were landed
    with pytest.raises(PositionExpired, match="deleted and created again"):
        log.land(opened(kafka, topic))
    source = opened(kafka, topic)
    assert isinstance(source, ResumableSource)
    log.position = source.resume_position("earliest", log.position).position
    assert log.next(topic) == {"0": 0}
    assert values(log.land(opened(kafka, topic))) == [b"b"] * 7
    assert log.land(opened(kafka, topic)) == []


def test_added_partitions_and_topics_begin_at_their_first_message(kafka: KafkaServer) -> None:
    topic, other, log = kafka.new_topic(), kafka.new_topic(), KafkaLog()
    kafka.produce(topic, {0: [b"old"]})
    assert log.land(opened(kafka, topic, start="latest")) == []
    kafka.add_partitions(topic, 3)
    kafka.produce(topic, {0: [b"0"], 2: [b"2"]})
    kafka.produce(other, {0: [b"other"]})
    landed = log.land(opened(kafka, topic, other, start="latest"))
    assert sorted(values(landed)) == [b"0", b"2", b"other"]


def test_a_time_begins_at_the_first_message_since_then(kafka: KafkaServer) -> None:
    topic = kafka.new_topic(2)
    producer = kafka.producer()
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=1_700_000_000_000 + number * 1_000)
    producer.produce(topic, b"early", partition=1, timestamp=1_600_000_000_000)
    producer.flush()
    options = {"bootstrap.servers": kafka.bootstrap}
    source = open_kafka_source("clicks", [topic], options, 1_700_000_006_500, max_rows=9, max_bytes=999)
    assert values(KafkaLog().land(source)) == [b"7", b"8", b"9"]


def test_a_wrong_password_and_missing_rights_are_refused_in_time_and_show_no_secret(kafka: KafkaServer) -> None:
    topic = kafka.new_topic()
    kafka.produce(topic, {0: [b"a"]})
    login = {
        "bootstrap.servers": kafka.sasl_bootstrap,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": kafka.user,
        "sasl.password": kafka.password,
    }
    wrong = {**login, "sasl.password": "hush-wrong"}
    begun = time.monotonic()
    with pytest.raises(EnvironmentUnusable, match="refused the login") as refused:
        KafkaLog().land(opened(kafka, topic, **wrong))
    assert "hush" not in refused.value.full_message()
    with pytest.raises(EnvironmentUnusable, match=f"does not let this user read {topic}"):
        KafkaLog().land(opened(kafka, topic, **login))
    assert time.monotonic() - begun < 10
    _allow(kafka, topic, AclOperation.DESCRIBE)
    with pytest.raises(EnvironmentUnusable, match=f"does not let this user read {topic}"):
        KafkaLog().land(opened(kafka, topic, **login))
    _allow(kafka, topic, AclOperation.READ)
    assert values(KafkaLog().land(opened(kafka, topic, **login))) == [b"a"], "it needs no right on any group"


def _allow(kafka: KafkaServer, topic: str, operation: AclOperation) -> None:
    acl = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{kafka.user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    for answer in kafka.admin.create_acls([acl]).values():
        answer.result(30)


def test_the_offsets_of_a_group_are_set_only_if_one_is_named(kafka: KafkaServer) -> None:
    topic, log = kafka.new_topic(), KafkaLog()
    kafka.produce(topic, {0: [b"a"] * 3})
    source = opened(kafka, topic, **{"group.id": f"group-{topic}"})
    log.land(source)
    source.commit(log.position)
    source.commit(log.position)
    wanted = ConsumerGroupTopicPartitions(f"group-{topic}", [TopicPartition(topic, 0)])
    answer = kafka.admin.list_consumer_group_offsets([wanted])[f"group-{topic}"].result(30)
    assert [offset.offset for offset in answer.topic_partitions] == [3]
    groups = {group.group_id for group in kafka.admin.list_consumer_groups().result(30).valid}
    assert "milepost" not in groups


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[KafkaServer]:
    """A broker of the test's own, which it may kill."""
    server = KafkaServer(tmp_path / "kafka")
    server.start()
    try:
        yield server
    finally:
        server.remove()


def test_a_broker_that_dies_while_it_is_read_ends_the_landing_and_the_next_goes_on(mortal: KafkaServer) -> None:
    topic, log = mortal.new_topic(2), KafkaLog()
    mortal.produce(topic, {0: [b"%d" % number for number in range(5_000)], 1: [b"x" * 100] * 5_000})
    options = {"bootstrap.servers": mortal.bootstrap}
    source = open_kafka_source("clicks", [topic], options, "earliest", max_rows=500, max_bytes=1 << 20, timeout_s=3)
    log.land(source, most=2)
    mortal.stop(kill=True)
    with pytest.raises(SourceUnreachable, match="within 3 s"):
        log.land(source)
    mortal.start()
    log.land(opened(mortal, topic))
    landed = [(partition, offset) for table in log.records for partition, offset in _places(table)]
    assert sorted(landed) == [(partition, offset) for partition in (0, 1) for offset in range(5_000)]


def test_a_disk_that_was_restored_from_a_copy_is_detected_although_more_was_written_since(mortal: KafkaServer) -> None:
    """The leader epoch rises with each start, so after a restore it is the one that was landed."""
    topic, log, data = mortal.new_topic(), KafkaLog(), mortal.directory / "data"
    mortal.produce(topic, {0: [b"a"] * 5})
    log.land(opened(mortal, topic))
    mortal.stop()
    shutil.copytree(data, mortal.directory / "copy")
    mortal.start()
    mortal.produce(topic, {0: [b"b"] * 5})
    log.land(opened(mortal, topic))
    mortal.stop()
    shutil.rmtree(data)
    shutil.move(mortal.directory / "copy", data)
    mortal.start()
    mortal.produce(topic, {0: [b"c"] * 9})
    with pytest.raises(SourceWentBack):
        log.land(opened(mortal, topic))
    assert len(log.records) == 2


def test_a_broker_that_comes_back_within_the_time_is_waited_for(mortal: KafkaServer) -> None:
    topic, log = mortal.new_topic(), KafkaLog()
    mortal.produce(topic, {0: [b"a"] * 10})
    mortal.stop(kill=True)
    restarted = threading.Timer(0.5, mortal.start)
    restarted.start()
    options = {"bootstrap.servers": mortal.bootstrap}
    source = open_kafka_source("clicks", [topic], options, "earliest", max_rows=500, max_bytes=1 << 20)
    assert len(log.land(source)) == 10
    restarted.join()


def _places(table: object) -> list[tuple[int, int]]:
    columns = table.select(["partition", "offset"]).to_pydict()  # type: ignore[attr-defined]
    return list(zip(columns["partition"], columns["offset"], strict=True))
