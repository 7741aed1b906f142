"""Read shares of partitions with one consumer, which continues from record to record.

A share ends by position, never by count: offsets 0 to 500 may have 11 messages, because the others were aborted or
compacted, or are transaction markers. Messages that the consumer delivers beyond a share wait for the next record.
"""

from __future__ import annotations

import gc
import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from operator import is_
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milepost.sources.landed.kafka.client import KafkaCluster
from milepost.sources.landed.kafka.message_batches import UnreadableHeader, read_message, record_batch, row_bytes
from milepost.sources.landed.kafka.positions import Partition, PartitionPosition, Share

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

_BATCH_MESSAGES = 10_000
_CONSUME_S = 0.05
_QUEUE_MESSAGES = 1_000_000
_QUEUE_KB = (16 << 10, 256 << 10)
_MAY_PASS = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT")
_REPORTS_PER_TIMEOUT = 4
"""Number of reports of the consumer about its progress within the timeout of a landing."""

_GROUP = "milepost"
"""The consumer needs the name of a group, but does not join it or set its offsets."""


_Delivered: TypeAlias = "tuple[pa.RecordBatch, list[Message]]"
"""Messages of one partition, as rows and as delivered. The latter have leader epochs."""


class PositionLost(Exception):
    """The broker has no message at the next offset. `args` are the partition and the broker's reason."""


@dataclass
class _ShareProgress:
    """The progress of a share, and its rows that are not yielded yet."""

    share: Share
    rows: int = 0
    bytes: int = 0
    position: PartitionPosition = field(init=False)
    is_done: bool = False
    batches: list[pa.RecordBatch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.position = self.share.start

    def take(self, delivered: _Delivered) -> _Delivered | None:
        """Take rows up to the end of the share. Returns those that follow; None: there are none."""
        batch, messages = delivered
        self._require_read_message(batch)
        repeated = int(np.searchsorted(batch.column("offset").to_numpy(), self.position.next))
        batch, messages = batch.slice(repeated), messages[repeated:]  # drop rows that were delivered before
        offsets = batch.column("offset").to_numpy()
        count = int(np.searchsorted(offsets, self.share.end.next))
        is_end = count < len(offsets)
        room = self.share.max_rows - self.rows
        sizes = np.cumsum(row_bytes(batch.slice(0, count)))
        fitting = min(room, int(np.searchsorted(sizes, self.share.max_bytes - self.bytes, side="right")))
        fitting = max(fitting, 1 - self.rows, 0)
        if fitting < count:
            count, is_end = fitting, False
            self.is_done = True
        if count:
            self.batches.append(batch.slice(0, count))
            self.rows, self.bytes = self.rows + count, self.bytes + int(sizes[count - 1])
            read = read_message(batch, count - 1)
            self.position = PartitionPosition(read.offset + 1, messages[count - 1].leader_epoch(), read)
        if is_end or self.position.next >= self.share.end.next:
            self.end()
        elif self.rows >= self.share.max_rows or self.bytes >= self.share.max_bytes:
            self.is_done = True
        return (batch.slice(count), messages[count:]) if count < batch.num_rows else None

    def end(self) -> None:
        """Mark the share as read to its planned end, wherever the last message before it was."""
        if self.position.next != self.share.end.next:
            self.position = self.share.end._replace(read=self.position.read)
        self.is_done = True

    def _require_read_message(self, batch: pa.RecordBatch) -> None:
        """Check that the newest message before the share is the one that was read. It may be deleted by compaction."""
        read, offsets = self.share.start.read, batch.column("offset").to_numpy()
        if read is None or (row := int(np.searchsorted(offsets, read.offset))) == len(offsets):
            return
        if offsets[row] == read.offset and read_message(batch, row) != read:
            raise PositionLost(self.share.partition, f"the message at offset {read.offset} is another one now")


class Reader:
    """The consumer of one landing.

    Args:
        max_bytes: of one record, by which the consumer's queue is bounded too.
    """

    def __init__(self, cluster: KafkaCluster, max_bytes: int) -> None:
        from confluent_kafka import Consumer, KafkaException

        self._cluster = cluster
        low, high = _QUEUE_KB
        own = {
            "group.id": _GROUP,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "queued.min.messages": _QUEUE_MESSAGES,
            "queued.max.messages.kbytes": min(high, max(low, max_bytes >> 10)),
            "statistics.interval.ms": max(1, int(cluster.timeout_s * 1000) // _REPORTS_PER_TIMEOUT),
            "stats_cb": self._note_statistics,
        }
        tuned = {"fetch.wait.max.ms": "50", **cluster.client}
        try:
            self._consumer: Consumer = Consumer({**tuned, **own, **cluster.events.options()})
        except (KafkaException, ValueError) as error:
            reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            what = f"the client's options cannot be used: {reason}"
            raise cluster.failures.invalid(what, "correct `client`") from error
        self._at: dict[Partition, PartitionPosition] = {}
        self._ends: dict[Partition, int] = {}
        self._waiting: dict[Partition, deque[_Delivered]] = {}
        self._fetched: dict[tuple[str, str], int] = {}
        self._has_fetched = False

    def close(self) -> None:
        self._consumer.close()

    def read(
        self, shares: Sequence[Share]
    ) -> Iterator[tuple[Partition, pa.RecordBatch] | dict[Partition, PartitionPosition]]:
        """Yield the rows of the shares as they arrive, in order per partition, and at last where each share stopped.

        Raises:
            PositionLost: the broker does not have a position to read from. SourceUnreachable: it does not answer, or
                nothing was fetched for the cluster's `timeout_s`. EnvironmentUnusable: the user may not read.
        """
        progress = {share.partition: _ShareProgress(share) for share in shares}
        self._go_to(progress)
        seen = time.monotonic()
        while True:
            for partition, item in progress.items():
                if item.batches:
                    yield from ((partition, batch) for batch in item.batches)
                    item.batches.clear()
                    seen = time.monotonic()
            if all(item.is_done for item in progress.values()):
                break
            with _without_cycle_detection():
                progressed = self._consume(progress)
            if progressed or self._has_fetched:
                seen, self._has_fetched = time.monotonic(), False
            elif self._cluster.events.fatal is not None:
                raise self._cluster.failures.of(self._cluster.events.fatal, "")
            elif time.monotonic() - seen > self._cluster.timeout_s:
                raise self._cluster.no_answer(None)
        self._at |= {partition: item.position for partition, item in progress.items()}
        yield {partition: item.position for partition, item in progress.items()}

    def _go_to(self, progress: dict[Partition, _ShareProgress]) -> None:
        """Assign the partitions of the shares to the consumer, at their first offsets."""
        from confluent_kafka import TopicPartition

        continued = {partition for partition, item in progress.items() if self._at.get(partition) == item.share.start}
        moved = [item.share for partition, item in progress.items() if partition not in continued]
        if stale := [partition for partition in self._at if partition not in progress or partition not in continued]:
            self._consumer.incremental_unassign([TopicPartition(*partition) for partition in stale])
            for partition in stale:
                del self._at[partition], self._waiting[partition]
                self._ends.pop(partition, None)
        if moved:
            self._consumer.incremental_assign([_assigned(share) for share in moved])
            self._at |= {share.partition: share.start for share in moved}
            self._waiting |= {share.partition: deque() for share in moved}
        for partition in continued:
            waiting = self._waiting[partition]
            while waiting and not progress[partition].is_done:
                rest = progress[partition].take(waiting.popleft())
                if rest is not None:
                    waiting.appendleft(rest)
            if not progress[partition].is_done and self._ends.get(partition, 0) >= progress[partition].share.end.next:
                progress[partition].end()
        running = [TopicPartition(*partition) for partition in continued if not progress[partition].is_done]
        if running:
            self._consumer.resume(running)

    def _consume(self, progress: dict[Partition, _ShareProgress]) -> bool:
        """Process the messages and events that the consumer has. Returns whether there was progress."""
        from confluent_kafka import Message

        messages = self._consumer.consume(_BATCH_MESSAGES, _CONSUME_S)
        failed: list[Message] = []
        if not all(map(is_, map(Message.error, messages), repeat(None))):
            failed = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        running = {partition for partition, item in progress.items() if not item.is_done}
        if messages:
            self._take(messages, progress)
        progressed = bool(messages)
        for message in failed:
            progressed |= self._note(message, progress)
        self._pause([partition for partition in running if progress[partition].is_done])
        return progressed

    def _take(self, messages: list[Message], progress: dict[Partition, _ShareProgress]) -> None:
        partitions = list(progress)
        numbers = _numbers(messages, partitions)
        if np.any(numbers[1:] < numbers[:-1]):
            order = np.argsort(numbers, kind="stable")
            messages, numbers = [messages[at] for at in order.tolist()], numbers[order]
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for first, end in pairwise(cuts):
            partition, own = partitions[numbers[first]], messages[first:end]
            try:
                delivered = record_batch(partition, own), own
            except UnreadableHeader as error:
                raise self._cluster.failures.unreadable(partition, error.args[0]) from error
            rest = delivered if progress[partition].is_done else progress[partition].take(delivered)
            if rest is not None:
                self._waiting[partition].append(rest)

    def _note(self, message: Message, progress: dict[Partition, _ShareProgress]) -> bool:
        """Handle an event that the consumer delivers instead of a message. Returns whether it is progress."""
        from confluent_kafka import KafkaError

        error = message.error()
        assert error is not None
        topic, number = message.topic(), message.partition()
        partition = Partition(topic, number) if topic is not None and number is not None else None
        if error.code() == KafkaError._PARTITION_EOF:
            item = None if partition is None else progress.get(partition)
            if partition is None or item is None:
                return False
            self._ends[partition] = message.offset() or 0
            if item.is_done or self._ends[partition] < item.share.end.next:
                return False
            item.end()
            return True
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE):
            raise PositionLost(partition, self._cluster.failures.redact(error.str()))
        if _is_group_error(error):
            return False
        if error.retriable() or error.name() in _MAY_PASS:
            self._cluster.events.failed(error)
            return False
        raise self._cluster.failures.of(error, "the topics" if partition is None else partition.topic)

    def _note_statistics(self, text: str) -> None:
        """Store how far the consumer has fetched, including messages that it never delivers, such as aborted ones."""
        fetched = {
            (topic, number): int(partition.get("next_offset", -1))
            for topic, described in json.loads(text).get("topics", {}).items()
            for number, partition in described.get("partitions", {}).items()
        }
        self._has_fetched |= any(self._fetched.get(key, -1) < offset for key, offset in fetched.items())
        self._fetched = fetched

    def _pause(self, partitions: list[Partition]) -> None:
        from confluent_kafka import TopicPartition

        if partitions:
            self._consumer.pause([TopicPartition(*partition) for partition in partitions])


@contextmanager
def _without_cycle_detection() -> Iterator[None]:
    """Pause Python's cyclic garbage collector, which takes a third of the time of a landing of small messages.

    A batch of messages allocates 10,000 tracked objects, and every 700 of them trigger a collection. None is in a
    cycle, and almost all are freed with the batch.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _numbers(messages: list[Message], partitions: Sequence[Partition]) -> npt.NDArray[np.int64]:
    """Return the index of the partition of each message."""
    from confluent_kafka import Message

    names: Iterator[Any] = map(Message.partition, messages)
    codes: dict[Any, int] = {partition.number: code for code, partition in enumerate(partitions)}
    if len({partition.topic for partition in partitions}) > 1:
        names = zip(map(Message.topic, messages), names, strict=True)
        codes = {partition: code for code, partition in enumerate(partitions)}
    return np.fromiter(map(codes.__getitem__, names), np.int64, len(messages))


def _assigned(share: Share) -> Any:
    from confluent_kafka import TopicPartition

    start = share.start
    offset = start.next if start.read is None else start.read.offset
    if start.leader_epoch is None:
        return TopicPartition(*share.partition, offset)
    return TopicPartition(*share.partition, offset, leader_epoch=start.leader_epoch)


def _is_group_error(error: KafkaError) -> bool:
    """Return whether an error concerns the group, which is not used."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    )
