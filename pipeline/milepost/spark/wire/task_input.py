"""Received rows are the verified buffers of a task's channels, by edge of the job graph."""

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
    """A cancel marker: the channel that carried it first, and the sender's decline."""

    channel: int
    decline: Decline


@dataclass(slots=True)
class TaskInput:
    """All rows of a task's channels, taken to their end.

    Attributes:
        outcome: the senders' acknowledgements in channel order, or the decline: then no buffer counts.
        cancelled: the first cancel marker, if there was one.
        buffers, size: how many buffers there were, and their bytes.
    """

    outcome: tuple[AckEvent, ...] | Decline = ()
    cancelled: Cancelled | None = None
    buffers: int = 0
    size: int = 0
    _buffers: dict[tuple[str, str], dict[int, list[Buffer]]] = field(default_factory=dict)

    def pop_edge(self, operator: str, producer: str, senders: int) -> list[Sequence[Buffer]]:
        """Hand the buffers of one edge over, per channel, each in sequence order."""
        by_channel = self._buffers.pop((operator, producer), {})
        return [by_channel.get(channel, ()) for channel in range(senders)]

    def remaining(self) -> Iterator[Buffer]:
        """The buffers of operators that nobody took, in a fixed order: later levels need them."""
        for _, by_channel in sorted(self._buffers.items()):
            for _, buffers in sorted(by_channel.items()):
                yield from buffers

    def add(self, channel: int, buffer: Buffer) -> None:
        self.buffers += 1
        self.size += buffer.size
        self._buffers.setdefault((buffer.operator, buffer.producer), {}).setdefault(channel, []).append(buffer)


def receive(identity: SubtaskIdentity, channels: int, batches: Iterable[pa.RecordBatch], memory: Memory) -> TaskInput:
    """Read every row of a task's channels, whatever they say: Spark takes an early return for success.

    Raises: EnvironmentUnusable: the node's disk does not take what may not wait in memory; the input is drained.
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
