"""Receive and verify the buffers of a task's channels, by edge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields

import pyarrow as pa

from milepost.errors import EnvironmentUnusable
from milepost.protocol.exchange import (
    AckEvent,
    Barrier,
    BufferHeader,
    ChannelCheck,
    Decline,
    EventKind,
    SubtaskIdentity,
    decode_answer,
)
from milepost.spark.worker.task_memory import Memory
from milepost.state.buffers import Buffer

_HEADER = tuple(item.name for item in fields(BufferHeader))


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A cancel marker: the first channel that carried it, and the sender's decline."""

    channel: int
    decline: Decline


@dataclass(slots=True)
class TaskInput:
    """The complete input of a task's channels.

    Attributes:
        outcome: the senders' acknowledgements in channel order, or a decline. After a decline the buffers are ignored.
        cancelled: the first cancel marker, if there was one.
        buffers, size: number of buffers, and their bytes.
    """

    outcome: tuple[AckEvent, ...] | Decline = ()
    cancelled: Cancelled | None = None
    buffers: int = 0
    size: int = 0
    _buffers: dict[tuple[str, str], dict[int, list[Buffer]]] = field(default_factory=dict)

    def pop_edge(self, operator: str, producer: str, senders: int) -> list[Sequence[Buffer]]:
        """Remove and return the buffers of one edge, per channel, each in sequence order."""
        by_channel = self._buffers.pop((operator, producer), {})
        return [by_channel.get(channel, ()) for channel in range(senders)]

    def remaining(self) -> Iterator[Buffer]:
        """Yield the buffers that were not popped, in a fixed order. Later levels need them."""
        for _, by_channel in sorted(self._buffers.items()):
            for _, buffers in sorted(by_channel.items()):
                yield from buffers

    def add(self, channel: int, buffer: Buffer) -> None:
        self.buffers += 1
        self.size += buffer.size
        self._buffers.setdefault((buffer.operator, buffer.producer), {}).setdefault(channel, []).append(buffer)


def receive(identity: SubtaskIdentity, channels: int, batches: Iterable[pa.RecordBatch], memory: Memory) -> TaskInput:
    """Read every row of a task's channels, even after a decline: Spark treats an early return as success.

    Raises:
        EnvironmentUnusable: the input exceeds the memory budget and the node's disk is full. The input is drained.
    """
    check, received = ChannelCheck(identity, channels), TaskInput()
    unusable: EnvironmentUnusable | None = None
    for batch in batches:
        if unusable is not None:
            continue
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name != "payload"}
        payloads = batch.column("payload")
        for index, channel in enumerate(columns["channel"]):
            payload, kind = payloads[index].as_buffer(), EventKind(columns["kind"][index])
            if kind is EventKind.BUFFER:
                header = BufferHeader(**{name: columns[name][index] for name in _HEADER})
                if check.buffer(channel, columns["sequence"][index], header, memoryview(payload)):
                    buffer = Buffer(*header.edge, *header.times, payload)
                    try:
                        received.add(
                            channel,
                            buffer if received.size < memory.budget.held_bytes else buffer.spilled(memory.spill),
                        )
                    except EnvironmentUnusable as error:
                        unusable = error
                        break
            elif kind is EventKind.BARRIER:
                check.barrier(channel, Barrier.decode(payload.to_pybytes()))
            elif kind is EventKind.ACK:
                check.ack(channel, AckEvent.decode(payload.to_pybytes()))
            else:
                answer = decode_answer(payload.to_pybytes().decode())
                assert isinstance(answer, Decline)
                check.cancel(answer)
                received.cancelled = received.cancelled or Cancelled(channel, answer)
    if unusable is not None:
        raise unusable
    received.outcome = check.close()
    return received
