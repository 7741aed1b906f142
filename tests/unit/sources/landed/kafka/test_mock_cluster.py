"""Topics of librdkafka's mock cluster, which speaks the protocol over sockets and has no ids of topics."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Producer

from milepost.errors import (
    CheckpointError,
    InvalidRequest,
    PositionExpired,
    SourceReplaced,
    SourceUnreachable,
    SourceWentBack,
)
from milepost.sources.landed import ResumableSource, SchemaRegistry, WithSchemas
from milepost.sources.landed.kafka.client import KafkaCluster, Topic
from milepost.sources.landed.kafka.failures import Failures
from milepost.sources.landed.kafka.kafka_source import KafkaSource, Start, open_kafka_source
from milepost.sources.landed.kafka.positions import Partition, PartitionPosition
from milepost.sources.landed.messages import MESSAGE_SCHEMA
from milepost_testkit import wording
from milepost_testkit.jobs.kafka_landing import KafkaLog
from milepost_testkit.processes.processes import free_ports
from milepost_testkit.servers.raw_producer import produce_with_header

pytestmark = pytest.mark.long


@dataclass
class MockTopics(KafkaCluster):
    """A cluster whose topics have the ids, partitions and leader epoch that the test gives."""

    described: dict[str, Topic] = field(default_factory=dict)
    leader_epoch: int | None = None

    def cluster_id(self) -> str:
        return "mock"

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        return {name: self.described[name] for name in names}

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, PartitionPosition]:
        """As a broker, which returns the leader epoch with the end of a partition; the mock cluster does not."""
        ends = super().latest(partitions)
        return {partition: end._replace(leader_epoch=self.leader_epoch) for partition, end in ends.items()}


class Mock:
    """One mock cluster with the topic `clicks` of 4 partitions, of which the source sees as many as it describes."""

    def __init__(self) -> None:
        self.host = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        brokers = self.host.list_topics(timeout=10).brokers.values()
        self.servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        self.producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        self.described = {"clicks": Topic("id-1", (0, 1, 2))}
        self.leader_epoch: int | None = None

    def write(self, partition: int, *values: bytes | None, topic: str = "clicks", **keys: object) -> None:
        for value in values:
            self.producer.produce(topic, value, partition=partition, **keys)  # type: ignore[arg-type]
        assert self.producer.flush(10) == 0

    def expire(self, partition: int) -> None:
        """Write until the broker, which keeps 5 MB of each partition, has deleted its first messages."""
        self.write(partition, *[b"x" * 900_000] * 9)

    def source(
        self, start: Start = "earliest", max_rows: int = 1_000, max_bytes: int = 10**6, **client: str
    ) -> KafkaSource:
        options = {"bootstrap.servers": self.servers, "log_level": "0", **client}
        failures = Failures("clicks", self.servers, options)
        cluster = MockTopics(options, failures, 10.0, described=self.described, leader_epoch=self.leader_epoch)
        return KafkaSource(cluster, tuple(sorted(self.described)), start, max_rows, max_bytes)


@pytest.fixture
def mock() -> Iterator[Mock]:
    yield Mock()


def test_messages_are_landed_as_they_are(mock: Mock) -> None:
    mock.write(0, b"value", None, b"", key=b"key", timestamp=1_700_000_000_123)
    mock.write(0, b"x", headers=[("trace", b"1"), ("trace", None), ("ü", b"")], timestamp=1_700_000_000_124)
    log = KafkaLog()
    log.land(mock.source())
    (table,) = log.records
    assert table.schema == MESSAGE_SCHEMA
    assert table["value"].to_pylist() == [b"value", None, b"", b"x"]
    assert table["key"].to_pylist() == [b"key"] * 3 + [None]
    headers = [{"name": "trace", "value": b"1"}, {"name": "trace", "value": None}, {"name": "ü", "value": b""}]
    assert table["headers"].to_pylist() == [None, None, None, headers]
    assert [int(time.timestamp() * 1000 + 0.5) for time in table["timestamp"].to_pylist()] == [
        1_700_000_000_123
    ] * 3 + [1_700_000_000_124]
    assert set(table["timestamp_type"].to_pylist()) == {"create"}


@pytest.mark.deep
def test_rows_are_ordered_by_partition_and_offset_and_each_record_has_a_share_of_all(mock: Mock) -> None:
    for number in range(40):
        mock.write(number % 2, b"%d" % number)
    mock.write(2, b"one")
    log = KafkaLog()
    landed = log.land(mock.source(max_rows=10))
    for table in log.records:
        rows = list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
        assert rows == sorted(rows) and len(rows) <= 10
    assert set(log.records[0]["partition"].to_pylist()) == {0, 1, 2}
    assert log.behind[0] == ("clicks/0", "clicks/1") and log.behind[-1] == ()
    assert sorted(landed) == sorted(
        [(f"clicks/{number % 2}", number // 2, b"%d" % number) for number in range(40)] + [("clicks/2", 0, b"one")]
    )
    assert log.land(mock.source()) == [], "nothing is new"


def test_a_share_of_bytes_takes_at_least_one_message(mock: Mock) -> None:
    mock.write(0, *[b"x" * 1_000] * 3)
    mock.write(1, *[b"y" * 10] * 100)
    log = KafkaLog()
    assert len(log.land(mock.source(max_bytes=50))) == 103
    assert all(table["partition"].to_pylist().count(0) <= 1 for table in log.records)


@pytest.mark.deep
def test_many_landings_and_records_land_each_message_once(mock: Mock) -> None:
    log, expected = KafkaLog(), []
    for turn in range(3):
        for number in range(3):
            values = [b"%d-%d-%d" % (turn, number, at) for at in range(400 * number + turn)]
            mock.write(number, *values)
            expected += values
        log.land(mock.source(max_rows=170))
    landed = [value for table in log.records for value in table["value"].to_pylist()]
    assert sorted(landed) == sorted(expected)
    assert log.next("clicks") == {"0": 3, "1": 1203, "2": 2403}


@pytest.mark.deep
def test_a_record_says_how_many_offsets_the_cluster_had_after_it_when_it_was_read(mock: Mock) -> None:
    mock.write(0, *[b"a"] * 5)
    mock.write(1, *[b"b"] * 5)
    log, source = KafkaLog(), mock.source(max_rows=4)
    pull = source.next_pull(source.initial_position())
    assert pull is not None and pull.ahead is not None and pull.ahead.count == 10
    log.land(source, most=1)
    mock.write(0, b"later")
    log.land(source)
    assert log.backlogs == [6, 3, 1], "what was written after the landing began counts as not landed"
    log.land(mock.source())
    assert log.backlogs[-1] == 0


@pytest.mark.deep
def test_the_end_of_a_landing_is_fixed_at_its_start(mock: Mock) -> None:
    mock.write(0, *[b"before"] * 20)
    log, source = KafkaLog(), mock.source(max_rows=10)
    log.land(source, most=1)
    mock.write(0, *[b"after"] * 20)
    assert {value for _, _, value in log.land(source)} == {b"before"}
    assert log.next("clicks")["0"] == 20
    assert len(log.land(mock.source())) == 20


def test_latest_is_decided_once_and_a_new_partition_begins_at_its_first_message(mock: Mock) -> None:
    mock.write(0, b"old")
    mock.write(3, b"in the new partition")
    log = KafkaLog()
    assert log.land(mock.source("latest")) == []
    mock.write(0, b"new")
    mock.described["clicks"] = Topic("id-1", (0, 1, 2, 3))
    assert log.land(mock.source("latest")) == [("clicks/0", 1, b"new"), ("clicks/3", 0, b"in the new partition")]


def test_a_start_by_offsets_begins_the_other_partitions_at_their_earliest_message(mock: Mock) -> None:
    mock.write(0, b"a", b"b")
    mock.write(1, b"c")
    assert KafkaLog().land(mock.source({"clicks": {"0": 1}})) == [("clicks/0", 1, b"b"), ("clicks/1", 0, b"c")]
    for start, named in (({"clicks": {"0": 3}}, "offset 3"), ({"views": {"0": 0}}, "views/0")):
        with pytest.raises(InvalidRequest, match=named):
            mock.source(start).initial_position()


@pytest.mark.deep
def test_a_topic_may_be_added_and_begins_at_its_earliest_message(mock: Mock) -> None:
    mock.write(0, b"click")
    log = KafkaLog()
    log.land(mock.source("latest"))
    mock.write(0, b"view", topic="views")
    mock.described["views"] = Topic("id-2", (0,))
    assert log.land(mock.source("latest")) == [("views/0", 0, b"view")]


def test_a_topic_that_was_created_again_and_a_vanished_partition_are_refused(mock: Mock) -> None:
    mock.write(0, b"a")
    log = KafkaLog()
    log.land(mock.source())
    mock.described["clicks"] = Topic("id-2", (0, 1, 2))
    with pytest.raises(PositionExpired, match="topic clicks was deleted and created again"):
        log.land(mock.source())
    mock.described["clicks"] = Topic("id-1", (0, 1))
    with pytest.raises(SourceReplaced, match="clicks/2"):
        log.land(mock.source())
    mock.described["clicks"] = Topic("id-1", (0, 1, 2))
    assert log.land(mock.source()) == []


def test_a_topic_that_is_created_again_while_it_is_read_ends_the_landing(mock: Mock) -> None:
    mock.write(0, *[b"a"] * 30)
    source, log = mock.source(max_rows=10), KafkaLog()
    log.land(source, most=1)
    mock.described["clicks"] = Topic("id-2", (0, 1, 2))
    with pytest.raises(PositionExpired, match="created again"):
        log.land(source)
    assert len(log.records) == 1


def test_a_topic_may_not_be_replaced_by_another_one(mock: Mock) -> None:
    mock.write(0, b"a", b"b")
    log = KafkaLog()
    log.land(mock.source(), most=1)
    mock.write(0, *[b"view"] * 5, topic="views")
    mock.described = {"views": Topic("id-2", (0,))}
    with wording.raises(InvalidRequest):
        log.land(mock.source())
    with pytest.raises(InvalidRequest, match="topic clicks"):
        mock.source().resume_position("earliest", log.position)


@pytest.mark.parametrize(
    ("where", "rows"),
    [("earliest", [("clicks/0", 0), ("clicks/0", 1), ("clicks/0", 2), ("views/0", 1)]), ("latest", [("views/0", 1)])],
)
def test_a_log_goes_on_at_a_topic_that_was_created_again_and_skips_no_other_topic(
    mock: Mock, where: str, rows: list[tuple[str, int]]
) -> None:
    """The position of the former topic, offset 5 of partition 1, is beyond the end of the new one."""
    mock.write(0, b"view", topic="views")
    mock.described["views"] = Topic("id-2", (0,))
    log = KafkaLog()
    mock.write(0, *[b"a"] * 3)
    log.land(mock.source())
    former = deepcopy(log.position)
    log.position["clicks"]["partitions"]["1"] = {"next": 5, "leader_epoch": 7}
    mock.write(0, b"view", topic="views")
    mock.described["clicks"] = Topic("id-3", (0,))
    resumed = mock.source().resume_position(where, log.position)
    assert resumed.note.startswith("topic clicks: its offsets begin at 0 again")
    log.position = resumed.position
    assert log.position["clicks"]["id"] == "id-3"
    assert sorted((name, offset) for name, offset, _ in log.land(mock.source())) == rows
    assert mock.source().newest_true([former]) == 0, "what the former topic had was true"


@pytest.mark.deep
def test_a_partition_that_went_back_is_reported_before_lost_messages(mock: Mock) -> None:
    log = lost(mock)
    log.position["clicks"]["partitions"]["1"]["next"] = 5
    mock.write(0, b"view", topic="views")
    mock.described["views"] = Topic("id-2", (0,))
    log.position["views"] = {"id": "another", "partitions": {}}
    with pytest.raises(SourceWentBack, match="clicks/1"):
        mock.source().next_pull(log.position)


@pytest.mark.deep
def test_a_log_that_ends_before_the_position_has_lost_messages(mock: Mock) -> None:
    mock.write(0, b"a")
    log = KafkaLog()
    log.land(mock.source())
    log.position["clicks"]["partitions"]["0"]["next"] = 5
    with pytest.raises(CheckpointError, match="lost messages that were landed"):
        log.land(mock.source())


def landed_three_times(mock: Mock) -> tuple[KafkaLog, list[Any]]:
    """Return a log of three landings of two partitions, and the position after each, newest first."""
    log, ends = KafkaLog(), list[Any]()
    for number in range(3):
        mock.write(0, b"a%d" % number)
        mock.write(1, b"b%d" % number)
        log.land(mock.source())
        ends.insert(0, deepcopy(log.position))
    return log, ends


def test_another_message_where_the_newest_one_was_read_is_a_partition_that_went_back(mock: Mock) -> None:
    """As after a restore of the broker's disk: the partition is longer than what was landed, with the same epoch."""
    log, ends = landed_three_times(mock)
    assert log.land(mock.source()) == []
    mock.write(0, b"after")
    for end in ends[:2]:
        end["clicks"]["partitions"]["0"]["read"][1] ^= 1
    log.position = ends[0]
    with pytest.raises(SourceWentBack, match=r"clicks/0: .* the message at offset 2 is another one now"):
        log.land(mock.source())
    assert mock.source().newest_true(ends) == 2
    ends[2]["clicks"]["partitions"]["1"]["read"][1] ^= 1
    assert mock.source().newest_true(ends) is None, "a partition without new messages is checked as well"


def test_a_position_whose_newest_message_has_expired_goes_on(mock: Mock) -> None:
    mock.write(0, b"a")
    log = KafkaLog()
    log.land(mock.source())
    mock.expire(0)
    log.position["clicks"]["partitions"]["0"]["next"] = mock.source().initial_position()["clicks"]["partitions"]["0"][
        "next"
    ]
    assert {name for name, _, _ in log.land(mock.source())} == {"clicks/0"}


def lost(mock: Mock) -> KafkaLog:
    """A log of 3 messages, after which partition 0 has lost offsets 2 to 5 and partition 1 has a new message."""
    mock.write(0, b"a", b"b")
    mock.write(1, b"c")
    log = KafkaLog()
    log.land(mock.source())
    mock.expire(0)
    mock.write(1, b"d")
    with pytest.raises(PositionExpired, match=r"clicks/0: expected to read from offset 2, .* before offset 6: 4 off"):
        log.land(mock.source())
    return log


@pytest.mark.deep
def test_a_log_goes_on_after_expired_messages_at_the_earliest_ones_and_skips_no_other_partition(mock: Mock) -> None:
    log = lost(mock)
    resumed = mock.source().resume_position("earliest", log.position)
    assert resumed.behind == ("clicks/0", "clicks/1")
    log.position = resumed.position
    assert log.next("clicks") == {"0": 6, "1": 1, "2": 0}
    rows = sorted((name, offset) for name, offset, _ in log.land(mock.source()))
    assert rows == [*[("clicks/0", at) for at in range(6, 11)], ("clicks/1", 1)]


@pytest.mark.parametrize("where", ["latest", 4_000_000_000_000], ids=["latest", "a time after the newest message"])
def test_a_log_may_go_on_at_the_end_of_the_partitions_that_have_lost_messages(mock: Mock, where: str | int) -> None:
    log = lost(mock)
    resumed = mock.source().resume_position(where, log.position)
    assert resumed.behind == ("clicks/1",), "it is not skipped, so its rows still come"
    log.position = resumed.position
    assert log.land(mock.source()) == [("clicks/1", 1, b"d")]


def test_messages_of_a_new_partition_that_expired_before_it_was_seen_are_lost(mock: Mock) -> None:
    mock.write(0, b"a")
    log = KafkaLog()
    log.land(mock.source())
    mock.described["clicks"] = Topic("id-1", (0, 1, 2, 3))
    mock.expire(3)
    with pytest.raises(PositionExpired, match="clicks/3: expected to read from offset 0"):
        log.land(mock.source())
    log.position = mock.source().resume_position("earliest", log.position).position
    assert log.next("clicks")["3"] > 0
    assert {name for name, _, _ in log.land(mock.source())} == {"clicks/3"}


def test_without_lost_messages_a_position_stays(mock: Mock) -> None:
    mock.write(0, b"a")
    log = KafkaLog()
    log.land(mock.source())
    mock.write(0, b"b")
    for where in ("earliest", "latest", 0):
        assert mock.source().resume_position(where, log.position).position == log.position


def test_a_log_does_not_go_on_after_a_partition_that_went_back(mock: Mock) -> None:
    log = lost(mock)
    log.position["clicks"]["partitions"]["1"]["next"] = 5
    with pytest.raises(SourceWentBack, match="clicks/1"):
        mock.source().resume_position("earliest", log.position)


def test_the_newest_true_position_is_one_that_no_partition_is_behind(mock: Mock) -> None:
    _, ends = landed_three_times(mock)
    mock.leader_epoch = 0
    assert mock.source().newest_true(ends) == 0
    ends[0]["clicks"]["partitions"]["1"]["next"] += 1
    assert mock.source().newest_true(ends) == 1
    ends[1]["clicks"]["partitions"]["0"]["leader_epoch"] = 99
    assert mock.source().newest_true(ends) == 2
    assert mock.source().newest_true(ends[:2]) is None
    mock.expire(0)
    assert mock.source().newest_true(ends[2:]) == 0, "what has expired counts as true"


def test_no_answer_ends_within_the_time_and_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "hush-5575"
    client = {
        "bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "reader",
        "sasl.password": secret,
    }
    source = open_kafka_source("clicks", ["clicks"], client, "earliest", max_rows=1, max_bytes=1, timeout_s=1)
    begun = time.monotonic()
    with pytest.raises(SourceUnreachable, match=r"source clicks: .* within 1 s") as refused:
        source.identity()
    assert time.monotonic() - begun < 5
    assert secret not in refused.value.full_message() + repr(refused.value.details) + caplog.text


def test_options_that_librdkafka_does_not_know_are_refused_without_their_values() -> None:
    secret = "hush-5575"
    client = {"bootstrap.servers": "127.0.0.1:1", "sasl.pasword": secret, "sasl.password": secret}
    source = open_kafka_source("clicks", ["clicks"], client, "earliest", max_rows=1, max_bytes=1)
    with pytest.raises(InvalidRequest, match=r"sasl\.pasword") as refused:
        source.identity()
    assert secret not in refused.value.full_message()


def test_a_header_whose_name_is_no_text_is_refused_with_its_offset(mock: Mock) -> None:
    mock.write(1, b"a", b"b", headers=[("trace", b"1")])
    produce_with_header(mock.servers, "clicks", 1, b"tr\xff")
    mock.write(1, b"c")
    log = KafkaLog()
    with wording.raises(InvalidRequest):
        log.land(mock.source())
    assert log.records == []
    start = {"clicks": {"1": 3}}
    assert [value for _, _, value in KafkaLog().land(mock.source(start))] == [b"c"]


def test_a_log_of_messages_with_schemas_goes_on_after_expired_messages_as_well(mock: Mock) -> None:
    log = lost(mock)
    source = WithSchemas(mock.source(), SchemaRegistry("clicks", "AVRO", "http://127.0.0.1:1"))
    assert isinstance(source, ResumableSource)
    assert source.resume_position("earliest", log.position) == mock.source().resume_position("earliest", log.position)
