"""Messages of one topic, in place of a Kafka cluster: the lander stores them as it stores Kafka's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from milepost.protocol.landed import Identity, Position
from milepost.sources.landed import Pull, Reached
from milepost_testkit.jobs.landed_messages import Message, message_table


class MessageFeed:
    """A `LandedSource` of the messages that a test adds. Its position is how many were landed.

    Attributes:
        messages: all of them, with offsets that ascend within each partition.
        record_rows: maximum number of messages per record.
    """

    def __init__(self, record_rows: int = 1_000) -> None:
        self.messages: list[Message] = []
        self.record_rows = record_rows

    def add(self, messages: Sequence[tuple[bytes | None, bytes | None, int]]) -> None:
        """Add messages of a value, a key and a partition."""
        for value, key, partition in messages:
            offset = sum(message.partition == partition for message in self.messages)
            self.messages.append(Message(value, key, partition, offset))

    def identity(self) -> Identity:
        return {"format": "kafka", "cluster": "a feed"}

    def initial_position(self) -> Position:
        return {"next": 0}

    def next_pull(self, position: Position) -> Pull | None:
        first, end = position["next"], min(position["next"] + self.record_rows, len(self.messages))
        return None if first >= end else Pull([(first, end)], {"next": end})

    def read(self, split: Any) -> Iterator[pa.RecordBatch | Reached]:
        first, end = split
        part = sorted(self.messages[first:end], key=lambda message: (message.partition, message.offset))
        yield from message_table(part).to_batches()

    def commit(self, end: Position) -> None:
        """Nothing is acknowledged."""

    def resume_position(self, where: str | int, position: Position) -> Reached:
        """Nothing is ever lost: go on at the end."""
        return Reached({"next": len(self.messages)})
