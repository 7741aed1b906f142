"""Format `kafka`: the committed messages of topics, not decoded.

A landing fixes the ends of all partitions at its start, so that a live topic does not prolong it. Each record
takes a share of every partition that is behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np

from milepost.errors import CheckpointError, PositionExpired
from milepost.protocol.landed import Identity, Position, SourceBacklog
from milepost.sources.landed.contract import LandedSource, PartRows, Pull, Reached, Resumption
from milepost.sources.landed.kafka.client import KafkaCluster, Topic
from milepost.sources.landed.kafka.failures import Failures
from milepost.sources.landed.kafka.positions import (
    Partition,
    PartitionPosition,
    PartitionPositions,
    Share,
    backlog,
    behind,
    decode_position,
    encode_position,
    plan_shares,
    resolve_positions,
)
from milepost.sources.landed.kafka.reader import PositionLost, Reader

TIMEOUT_S = 30.0
"""A landing fails if Kafka does not answer for this long."""

_OFFSETS_BEGIN_AGAIN = (
    "its offsets begin at 0 again. Operators that order its rows by the partition or offset of a message need the "
    "`sequence` of its record first (`metadata`); otherwise they treat new rows as older ones"
)

Start = str | int | Mapping[str, Mapping[str, int]]
"""earliest, latest, a time in milliseconds, or the first offset by topic and partition."""


def open_kafka_source(
    name: str,
    topics: Sequence[str],
    client: Mapping[str, str],
    start: Start,
    *,
    max_rows: int,
    max_bytes: int,
    timeout_s: float = TIMEOUT_S,
) -> LandedSource:
    """Open topics for one landing. Connects at the first call.

    Args:
        name: of the source, for messages. client: options of librdkafka, with `bootstrap.servers` and secrets. With
            `group.id`, that group's offsets show how far was landed.
        start: where a new log begins. max_rows, max_bytes: of one record.
        timeout_s: the landing fails if Kafka does not answer for this long.
    """
    options = {key: value for key, value in client.items() if key != "group.id"}
    cluster = KafkaCluster(options, Failures(name, client["bootstrap.servers"], client), timeout_s)
    return KafkaSource(cluster, tuple(sorted(set(topics))), start, max_rows, max_bytes, client.get("group.id"))


@dataclass
class _StartState:
    """The topics as they were at the start of the landing, which reads up to their ends."""

    topics: dict[str, Topic]
    earliest: dict[Partition, PartitionPosition]
    ends: dict[Partition, PartitionPosition]


@dataclass(frozen=True, slots=True)
class _Split:
    """The shares of one record, and the position before it, with every partition."""

    shares: tuple[Share, ...]
    position: Position


@dataclass
class KafkaSource:
    """Topics of one cluster, opened for one landing. Arguments: as in `open_kafka_source`."""

    cluster: KafkaCluster
    topics: tuple[str, ...]
    start: Start
    max_rows: int
    max_bytes: int
    group: str | None = None
    _reader: Reader | None = field(default=None, init=False)
    _start_state: _StartState | None = field(default=None, init=False)

    def identity(self) -> Identity:
        """Return the cluster's id. The ids of topics are in the position, because topics may be added."""
        return {"format": "kafka", "cluster": self.cluster.cluster_id()}

    def initial_position(self) -> Position:
        state = self._state_at_start()
        partitions = list(state.ends)
        if self.start == "earliest":
            positions = state.earliest
        elif self.start == "latest":
            positions = state.ends
        elif isinstance(self.start, int):
            positions = self.cluster.since(partitions, self.start)
        else:
            assert isinstance(self.start, Mapping), self.start
            positions = state.earliest | self._named_positions(self.start, state)
        return encode_position({name: topic.id for name, topic in state.topics.items()}, positions)

    def next_pull(self, position: Position) -> Pull | None:
        state = self._state_at_start()
        ids, positions, created_again = self._positions(position, state)
        self._require_there(_of(positions, state.ends), state)
        if created_again:
            raise self.cluster.failures.created_again(created_again[0])
        shares = plan_shares(positions, state.ends, self.max_rows, self.max_bytes)
        if not shares:
            self._close()
            return None
        return Pull(
            [_Split(shares, encode_position(ids, positions))], None, ahead=_offsets(backlog(positions, state.ends))
        )

    def read(self, split: Any) -> Iterator[PartRows | Reached]:
        assert isinstance(split, _Split), split
        shares = split.shares
        offsets: dict[Partition, list[np.ndarray[Any, Any]]] = {share.partition: [] for share in shares}
        parts = {share.partition: number for number, share in enumerate(shares)}
        reached: dict[Partition, PartitionPosition] = {}
        if self._reader is None:
            self._reader = Reader(self.cluster, self.max_bytes)
        try:
            for item in self._reader.read(shares):
                if isinstance(item, dict):
                    reached = item
                    continue
                partition, rows = item
                offsets[partition].append(rows.column("offset").to_numpy())
                yield PartRows(parts[partition], rows)
            self._require_complete(shares, offsets)
        except PositionLost as lost:
            self._close()
            raise self._position_lost(lost, shares) from lost
        except BaseException:
            self._close()
            raise
        ids, positions = decode_position(split.position)
        positions |= reached
        assert self._start_state is not None
        left = tuple(partition.name for partition in behind(positions, self._start_state.ends))
        ends = self.cluster.latest(list(self._start_state.ends))
        yield Reached(encode_position(ids, positions), left, _offsets(backlog(positions, ends)))

    def resume_position(self, where: str | int, position: Position) -> Resumption:
        """Return a position in which only the partitions that have lost messages are moved.

        A topic that was created again has lost the messages of all its partitions.
        """
        state = self._state_at_start()
        ids, positions, created_again = self._positions(position, state)
        lost = [
            partition
            for partition in state.ends
            if partition.topic in created_again or positions[partition].next < state.earliest[partition].next
        ]
        moved: PartitionPositions = state.earliest if where == "earliest" else state.ends
        if isinstance(where, int):  # a message may have come after the ends were read
            since = self.cluster.since(lost, where)
            moved = {partition: min(at, state.ends[partition], key=itemgetter(0)) for partition, at in since.items()}
        positions |= {partition: moved[partition] for partition in lost}
        self._require_there(_of(positions, state.ends), state)
        left = tuple(partition.name for partition in behind(positions, state.ends))
        note = f"topic {', '.join(created_again)}: {_OFFSETS_BEGIN_AGAIN}" if created_again else ""
        return Resumption(encode_position(ids, positions), left, _offsets(backlog(positions, state.ends)), note=note)

    def newest_true(self, ends: Iterable[Position]) -> int | None:
        """Return the first position whose messages the cluster has not lost. Expired messages count as true."""
        state = self._state_at_start()
        return next((number for number, end in enumerate(ends) if self._is_true(end, state)), None)

    def _is_true(self, end: Position, state: _StartState) -> bool:
        """Return whether no partition was truncated before a position. Reads one message after it of each.

        Messages from before a topic was created again count as true: they were deleted, like expired ones.
        """
        _, positions, created_again = self._positions(end, state)
        there = {partition: positions[partition] for partition in state.ends if partition.topic not in created_again}
        if any(self._found_before(at, state.ends[partition]) for partition, at in there.items()):
            return False
        there = {partition: at for partition, at in there.items() if at.next >= state.earliest[partition].next}
        shares = [
            Share(partition, at, state.ends[partition], max_rows=1, max_bytes=1)
            for partition, at in there.items()
            if at.next < state.ends[partition].next or at.read is not None
        ]
        reader = Reader(self.cluster, self.max_bytes)
        try:
            for _ in reader.read(shares) if shares else ():
                pass
        except PositionLost as lost:
            return isinstance(self._position_lost(lost, shares), PositionExpired)
        finally:
            reader.close()
        return True

    def commit(self, end: Position) -> None:
        """Set the group's offsets for dashboards, if the client names a group."""
        if self.group is not None:
            self.cluster.commit(self.group, decode_position(end)[1])

    def _state_at_start(self) -> _StartState:
        if self._start_state is None:
            topics = self.cluster.topics(self.topics)
            partitions = [Partition(name, number) for name in self.topics for number in topics[name].partitions]
            earliest, ends = self.cluster.earliest(partitions), self.cluster.latest(partitions)
            self._start_state = _StartState(topics, earliest, ends)
        return self._start_state

    def _positions(
        self, position: Position, state: _StartState
    ) -> tuple[dict[str, str], dict[Partition, PartitionPosition], list[str]]:
        """Return the ids of all topics, the position of each partition, and the topics that were created again.

        The partitions of these topics, and new ones, are where they begin.
        """
        stored, positions = decode_position(position)
        if left := sorted(stored.keys() - state.topics.keys()):
            raise self.cluster.failures.invalid(
                f"the log has messages of topic {', '.join(left)}, which `topics` no longer names",
                "name it in `topics` again, or give the source another name in the spec, which begins a log of its own",
            )
        created_again = [name for name, topic in state.topics.items() if stored.get(name, topic.id) != topic.id]
        known = {partition: at for partition, at in positions.items() if partition.topic not in created_again}
        self._require_partitions(known, state)
        ids = {name: topic.id for name, topic in state.topics.items()}
        continued = [name for name in stored if name not in created_again]
        return ids, resolve_positions(known, state.ends, state.earliest, continued), created_again

    def _named_positions(
        self, start: Mapping[str, Mapping[str, int]], state: _StartState
    ) -> dict[Partition, PartitionPosition]:
        named = {Partition(topic, int(number)): at for topic, of in start.items() for number, at in of.items()}
        for partition, offset in named.items():
            if partition not in state.ends:
                raise self.cluster.failures.invalid(
                    f"`start` names {partition.name}, which `topics` or the cluster does not have", "correct `start`"
                )
            low, high = state.earliest[partition].next, state.ends[partition].next
            if not low <= offset <= high:
                raise self.cluster.failures.invalid(
                    f"`start` names offset {offset} of {partition.name}, which has offsets from {low} up to {high}",
                    "correct `start`",
                )
        return {partition: PartitionPosition(offset) for partition, offset in named.items()}

    def _require_partitions(self, known: Iterable[Partition], state: _StartState) -> None:
        """Check that the topics have all partitions that were landed."""
        for partition in known:
            if partition not in state.ends:
                raise self.cluster.failures.replaced(
                    f"{partition.name} was landed, and the topic has no such partition now"
                )

    def _require_there(self, positions: Mapping[Partition, PartitionPosition], state: _StartState) -> None:
        """Check that the cluster still has the messages after the position and was not truncated before it."""
        failures = self.cluster.failures
        for partition, position in positions.items():
            if (found := self._found_before(position, state.ends[partition])) is not None:
                raise failures.went_back(partition, position, found)  # reported first, because a gap would not help
        for partition, position in positions.items():
            low = state.earliest[partition]
            if position.next < low.next:
                raise failures.expired(partition, position, low.next)

    @staticmethod
    def _found_before(position: PartitionPosition, end: PartitionPosition) -> str | None:
        """Return the evidence that a partition was truncated before a position; None: there is none."""
        if position.next > end.next:
            return f"the partition ends at offset {end.next}"
        if end.leader_epoch is not None and end.leader_epoch < (position.leader_epoch or 0):
            return f"its leader epoch is {end.leader_epoch}"
        return None

    def _require_complete(self, shares: Sequence[Share], offsets: Mapping[Partition, list[Any]]) -> None:
        """Check after reading that the topics are still the same, and that nothing expired before it was read.

        Offsets below the low watermark may be missing because they expired. If none is missing, all were read in time.
        """
        assert self._start_state is not None
        names = sorted({share.partition.topic for share in shares})
        for name, topic in self.cluster.topics(names).items():
            if topic.id != self._start_state.topics[name].id:
                raise self.cluster.failures.created_again(name)
        lows = self.cluster.earliest([share.partition for share in shares])
        for share in shares:
            low = min(lows[share.partition].next, share.end.next)
            read = sum(int(np.searchsorted(part, low)) for part in offsets[share.partition])
            if low > share.start.next and read < low - share.start.next:
                raise self.cluster.failures.expired(share.partition, share.start, lows[share.partition].next)

    def _position_lost(self, lost: PositionLost, shares: Sequence[Share]) -> CheckpointError:
        """Return the error for a position that the broker does not have: it expired, or the partition was truncated."""
        partition, reason = lost.args
        position = next(share.start for share in shares if share.partition == partition)
        low = self.cluster.earliest([partition])[partition].next
        if low > position.next:
            return self.cluster.failures.expired(partition, position, low)
        if position.read is not None and low > position.read.offset:
            return self.cluster.failures.unreachable(f"Kafka deleted messages of {partition.name} while it was read")
        return self.cluster.failures.went_back(partition, position, reason)

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _of(positions: PartitionPositions, partitions: Iterable[Partition]) -> PartitionPositions:
    """Return the positions of some partitions."""
    return {partition: positions[partition] for partition in partitions}


def _offsets(count: int) -> SourceBacklog:
    return SourceBacklog(count, "offset")
