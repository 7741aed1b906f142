"""Land Kafka topics without a job: what the lander would store, record by record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import pyarrow as pa

from milepost.protocol.landed import Position
from milepost.sources.landed import MESSAGE_SCHEMA, LandedSource, PartRows, Reached, stored_position


@dataclass
class KafkaLog:
    """What was landed, as the records of a log have it.

    Attributes:
        records: rows of each record. position: after the newest one. behind, backlogs: of each record.
    """

    position: Position = None
    records: list[pa.Table] = field(default_factory=list)
    behind: list[tuple[str, ...]] = field(default_factory=list)
    backlogs: list[int] = field(default_factory=list)

    def land(self, source: LandedSource, most: int = 1_000_000) -> list[tuple[str, int, bytes | None]]:
        """Land to the end, or at most so many records. Returns the partition, offset and value of the new messages."""
        if self.position is None:
            self.position = stored_position("clicks", source.initial_position())
        first = len(self.records)
        while len(self.records) - first < most and (pull := source.next_pull(self.position)) is not None:
            batches: list[tuple[int, pa.RecordBatch]] = []
            for item in source.read(pull.splits[0]):
                if isinstance(item, Reached):
                    position = stored_position("clicks", item.position)
                    self.behind.append(item.behind)
                    assert item.backlog is not None and item.backlog.unit == "offset", item
                    self.backlogs.append(item.backlog.count)
                elif isinstance(item, PartRows):
                    batches.append((item.part, item.rows))
            if not batches:  # the lander appends nothing, and stops
                break
            self.records.append(_in_order(batches))
            self.position = position
        return [row for table in self.records[first:] for row in messages(table)]

    def next(self, topic: str) -> dict[str, int]:
        """Return the next offset of each partition."""
        return {number: place["next"] for number, place in self.position[topic]["partitions"].items()}


def _in_order(batches: list[tuple[int, pa.RecordBatch]]) -> pa.Table:
    """Return the rows of all parts, part by part."""
    return pa.Table.from_batches([rows for _, rows in sorted(batches, key=itemgetter(0))], MESSAGE_SCHEMA)


def messages(table: pa.Table) -> list[tuple[str, int, bytes | None]]:
    """Return partition, offset and value of each row."""
    rows: list[Mapping[str, Any]] = table.select(["topic", "partition", "offset", "value"]).to_pylist()
    return [(f"{row['topic']}/{row['partition']}", row["offset"], row["value"]) for row in rows]
