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


class Place(NamedTuple):
    """The next offset to read.

    Attributes:
        leader_epoch: of the message before it; None: unknown.
        read: the newest message before it; None: none was read, or Kafka has deleted it.
    """

    next: int
    leader_epoch: int | None = None
    read: ReadMessage | None = None


Places = Mapping[Partition, Place]


@dataclass(frozen=True, slots=True)
class Share:
    """What one record takes of a partition: at least one message, unless none is left before `end`."""

    partition: Partition
    start: Place
    end: Place
    max_rows: int
    max_bytes: int


def encode_position(topic_ids: Mapping[str, str], places: Places) -> Position:
    """Return a position as JSON.

    Args:
        topic_ids: of every topic that the position has.
    """
    return {
        topic: {
            "id": topic_id,
            "partitions": {
                str(partition.number): _encode_place(place)
                for partition, place in sorted(places.items())
                if partition.topic == topic
            },
        }
        for topic, topic_id in sorted(topic_ids.items())
    }


def _encode_place(place: Place) -> dict[str, Any]:
    fields = {"next": place.next, "leader_epoch": place.leader_epoch}
    return fields if place.read is None else {**fields, "read": list(place.read)}


def decode_position(position: Position) -> tuple[dict[str, str], dict[Partition, Place]]:
    """Return the topic ids and the places of a position."""
    ids = {topic: str(entry["id"]) for topic, entry in position.items()}
    places = {
        Partition(topic, int(number)): _decode_place(place)
        for topic, entry in position.items()
        for number, place in entry["partitions"].items()
    }
    return ids, dict(sorted(places.items()))


def _decode_place(place: Mapping[str, Any]) -> Place:
    read = place.get("read")  # positions of earlier versions have none
    return Place(place["next"], place["leader_epoch"], None if read is None else ReadMessage(*read))


def behind(places: Places, ends: Places) -> tuple[Partition, ...]:
    """Return the partitions that are not read to their end."""
    return tuple(partition for partition, end in sorted(ends.items()) if places[partition].next < end.next)


def backlog(places: Places, ends: Places) -> int:
    """Return the number of unread offsets. Some have no message: aborted or compacted ones, and transaction markers."""
    return sum(max(0, end.next - places[partition].next) for partition, end in ends.items())


def plan_shares(places: Places, ends: Places, max_rows: int, max_bytes: int) -> tuple[Share, ...]:
    """Divide the limits of a record among the partitions that are behind, in their order.

    A partition with less backlog than an equal share leaves the rest to the others. Bytes follow the rows. With
    `max_rows` 100, backlogs of 10, 60 and 500 offsets take 10, 45 and 45 rows.
    """
    unread = {partition: ends[partition].next - places[partition].next for partition in behind(places, ends)}
    rows: dict[Partition, int] = {}
    left = max_rows
    for waiting, (partition, offsets) in zip(
        range(len(unread), 0, -1), sorted(unread.items(), key=lambda item: item[1]), strict=True
    ):
        rows[partition] = max(1, min(offsets, left // waiting))
        left = max(0, left - rows[partition])
    total = sum(rows.values())
    return tuple(
        Share(partition, places[partition], ends[partition], count, max(1, max_bytes * count // total))
        for partition, count in sorted(rows.items())
    )


def resolve_places(
    places: Places, partitions: Iterable[Partition], earliest: Places, known_topics: Sequence[str]
) -> dict[Partition, Place]:
    """Return the place of each partition, including new ones.

    A new partition of a known topic begins at offset 0: if that has expired, messages were lost. A new topic begins at
    its earliest message. A message that has expired since it was read is removed from its place.
    """
    return {
        partition: _unexpired(places[partition], earliest[partition])
        if partition in places
        else Place(0)
        if partition.topic in known_topics
        else earliest[partition]
        for partition in partitions
    }


def _unexpired(place: Place, earliest: Place) -> Place:
    return place if place.read is None or place.read.offset >= earliest.next else place._replace(read=None)
