"""Positions in Kafka topics, and how much of each partition one record takes. Pure.

A position has, per topic, its id and the next offset of each partition. The leader epoch is that of the message before
that offset: with it, the broker detects that it has lost messages since. A broker whose disk was restored from a copy
may reach the same offset and leader epoch with other messages. So the position also has the offset and a checksum of
the newest message that was read::

    {"clicks": {"id": "d6aAM4R1RPW9bOjStf0P", "partitions": {"0": {"next": 120, "leader_epoch": 3, "read": [119, 7]}}}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from milepost.protocol.landed import Position
from milepost.sources.landed.messages import partition_name


class Partition(NamedTuple):
    """One partition of a topic, in the order of rows."""

    topic: str
    number: int

    @property
    def name(self) -> str:
        return partition_name(self.topic, self.number)


class ReadMessage(NamedTuple):
    """The newest message that was read."""

    offset: int
    checksum: int


class PartitionPosition(NamedTuple):
    """The next offset to read.

    Attributes:
        leader_epoch: of the message before it; None: unknown.
        read: the newest message before it; None: none was read, or Kafka has deleted it.
    """

    next: int
    leader_epoch: int | None = None
    read: ReadMessage | None = None


PartitionPositions = Mapping[Partition, PartitionPosition]


@dataclass(frozen=True, slots=True)
class Share:
    """What one record takes of a partition: at least one message, unless none is left before `end`."""

    partition: Partition
    start: PartitionPosition
    end: PartitionPosition
    max_rows: int
    max_bytes: int


def encode_position(topic_ids: Mapping[str, str], positions: PartitionPositions) -> Position:
    """Return a position as JSON.

    Args:
        topic_ids: of every topic that the position has.
    """
    return {
        topic: {
            "id": topic_id,
            "partitions": {
                str(partition.number): _encode_partition(position)
                for partition, position in sorted(positions.items())
                if partition.topic == topic
            },
        }
        for topic, topic_id in sorted(topic_ids.items())
    }


def _encode_partition(position: PartitionPosition) -> dict[str, Any]:
    fields = {"next": position.next, "leader_epoch": position.leader_epoch}
    return fields if position.read is None else {**fields, "read": list(position.read)}


def decode_position(position: Position) -> tuple[dict[str, str], dict[Partition, PartitionPosition]]:
    """Return the topic ids, and the position of each partition."""
    ids = {topic: str(entry["id"]) for topic, entry in position.items()}
    positions = {
        Partition(topic, int(number)): _decode_partition(stored)
        for topic, entry in position.items()
        for number, stored in entry["partitions"].items()
    }
    return ids, dict(sorted(positions.items()))


def _decode_partition(stored: Mapping[str, Any]) -> PartitionPosition:
    read = stored.get("read")  # positions of earlier versions have none
    return PartitionPosition(stored["next"], stored["leader_epoch"], None if read is None else ReadMessage(*read))


def behind(positions: PartitionPositions, ends: PartitionPositions) -> tuple[Partition, ...]:
    """Return the partitions that are not read to their end."""
    return tuple(partition for partition, end in sorted(ends.items()) if positions[partition].next < end.next)


def backlog(positions: PartitionPositions, ends: PartitionPositions) -> int:
    """Return the number of unread offsets. Some have no message: aborted or compacted ones, and transaction markers."""
    return sum(max(0, end.next - positions[partition].next) for partition, end in ends.items())


def plan_shares(
    positions: PartitionPositions, ends: PartitionPositions, max_rows: int, max_bytes: int
) -> tuple[Share, ...]:
    """Divide the limits of a record among the partitions that are behind, in their order.

    A partition with less backlog than an equal share leaves the rest to the others. Bytes follow the rows. With
    `max_rows` 100, backlogs of 10, 60 and 500 offsets take 10, 45 and 45 rows.
    """
    unread = {partition: ends[partition].next - positions[partition].next for partition in behind(positions, ends)}
    rows: dict[Partition, int] = {}
    left = max_rows
    for waiting, (partition, offsets) in zip(
        range(len(unread), 0, -1), sorted(unread.items(), key=lambda item: item[1]), strict=True
    ):
        rows[partition] = max(1, min(offsets, left // waiting))
        left = max(0, left - rows[partition])
    total = sum(rows.values())
    return tuple(
        Share(partition, positions[partition], ends[partition], count, max(1, max_bytes * count // total))
        for partition, count in sorted(rows.items())
    )


def resolve_positions(
    positions: PartitionPositions,
    partitions: Iterable[Partition],
    earliest: PartitionPositions,
    known_topics: Sequence[str],
) -> dict[Partition, PartitionPosition]:
    """Return the position of each partition, including new ones.

    A new partition of a known topic begins at offset 0: if that has expired, messages were lost. A new topic begins at
    its earliest message. A message that has expired since it was read is removed from the position.
    """
    return {
        partition: _unexpired(positions[partition], earliest[partition])
        if partition in positions
        else PartitionPosition(0)
        if partition.topic in known_topics
        else earliest[partition]
        for partition in partitions
    }


def _unexpired(position: PartitionPosition, earliest: PartitionPosition) -> PartitionPosition:
    is_expired = position.read is not None and position.read.offset < earliest.next
    return position._replace(read=None) if is_expired else position
