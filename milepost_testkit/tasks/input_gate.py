"""An input gate in memory: it puts events in front of a real `BarrierHandler` and obeys its commands.

Channels are queues. Data and aligned barriers wait in them in order; an unaligned barrier and a cancel marker overtake
what is unread; an aligned barrier with a timeout is announced ahead of it, unless its channel is local.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.subtask.barrier_events import (
    AbortCheckpoint,
    Alignment,
    ArmTimer,
    BlockChannel,
    CancelTimer,
    CheckpointBarrier,
    Command,
    InitInputs,
    Prioritise,
    StartRecording,
    StopRecording,
    TriggerCheckpoint,
    UnblockChannel,
)
from milepost.protocol.subtask.barrier_handler import BarrierHandler


@dataclass(frozen=True)
class Data:
    """One buffer; `name` tells it from others."""

    name: str
    size_bytes: int = 100


@dataclass(frozen=True)
class Cancel:
    """A cancel marker."""

    checkpoint_id: int


@dataclass(frozen=True)
class End:
    """End of partition."""


@dataclass(frozen=True)
class Announcement:
    """Goes ahead of a barrier that waits in its channel."""

    barrier: CheckpointBarrier


Payload = Data | Cancel | End | Announcement | CheckpointBarrier


@dataclass(frozen=True)
class _Item:
    arrival: int
    channel: int
    sequence: int
    payload: Payload


def barrier(checkpoint_id: int, timestamp_ms: int = 0) -> CheckpointBarrier:
    """An aligned barrier without timeout."""
    return CheckpointBarrier(CheckpointId(checkpoint_id), timestamp_ms, Alignment.ALIGNED)


def timeoutable(checkpoint_id: int, timestamp_ms: int, timeout_ms: int) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(checkpoint_id), timestamp_ms, Alignment.TIMEOUTABLE, timeout_ms)


def unaligned(checkpoint_id: int, timestamp_ms: int = 0) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(checkpoint_id), timestamp_ms, Alignment.UNALIGNED)


@dataclass
class InputGate:
    """`channels` queues before one handler.

    Attributes:
        local: channels whose barriers are not announced.
        output: data in the order in which it was read.
        recorded: data that became channel state, by StartRecording and StopRecording alone.
        cuts: checkpoint -> how much of `output` had been read when it was triggered.
        channel_state: checkpoint -> what was recorded for it.
        read_while_aligning: bytes read between the first and the last barrier of the newest alignment.
    """

    channels: int
    alternating: bool = True
    local: frozenset[int] = frozenset()
    now_ms: int = 1_000
    commands: list[Command] = field(default_factory=list)
    output: list[Data] = field(default_factory=list)
    recorded: list[Data] = field(default_factory=list)
    cuts: dict[int, int] = field(default_factory=dict)
    channel_state: dict[int, list[Data]] = field(default_factory=dict)
    triggered: list[CheckpointBarrier] = field(default_factory=list)
    aborted: list[AbortCheckpoint] = field(default_factory=list)
    initialised: list[CheckpointBarrier] = field(default_factory=list)
    blocked: set[int] = field(default_factory=set)
    timer: ArmTimer | None = None
    read_while_aligning: int = 0

    def __post_init__(self) -> None:
        self.handler = BarrierHandler(self.channels, alternating=self.alternating)
        self._queues: list[deque[_Item]] = [deque() for _ in range(self.channels)]
        self._ahead: deque[_Item] = deque()
        self._sequences = [0] * self.channels
        self._barrier_at: dict[tuple[int, int], int] = {}
        self._arrivals = 0
        self._recording: set[int] = set()

    @property
    def triggered_ids(self) -> list[int]:
        return [item.checkpoint_id for item in self.triggered]

    @property
    def aborted_ids(self) -> list[int]:
        return [item.checkpoint_id for item in self.aborted]

    def put(self, channel: int, *payloads: Payload) -> None:
        """Queue payloads on a channel; nothing is read."""
        for payload in payloads:
            self._arrivals += 1
            item = _Item(self._arrivals, channel, self._sequences[channel], payload)
            self._sequences[channel] += 1
            if isinstance(payload, CheckpointBarrier):
                self._barrier_at[channel, payload.checkpoint_id] = item.sequence
            if isinstance(payload, Cancel) or (isinstance(payload, CheckpointBarrier) and payload.is_unaligned):
                self._ahead.append(item)
            else:
                if (
                    isinstance(payload, CheckpointBarrier)
                    and payload.alignment is Alignment.TIMEOUTABLE
                    and channel not in self.local
                ):
                    self._ahead.append(_Item(item.arrival, channel, item.sequence, Announcement(payload)))
                self._queues[channel].append(item)

    def send(self, channel: int, *payloads: Payload) -> None:
        """Queue payloads one by one, and after each read all that can be read."""
        for payload in payloads:
            self.put(channel, payload)
            self.drain()

    def deliver(self, channel: int, *payloads: Payload) -> None:
        """Deliver payloads to the handler immediately, whether or not the channel is blocked."""
        for payload in payloads:
            self._deliver(_Item(0, channel, 0, payload))

    def poll(self) -> Payload | None:
        """Read one item: what overtakes first, then the oldest at the head of a channel that is not blocked."""
        if self._ahead:
            item = self._ahead.popleft()
        else:
            heads = [queue[0] for index, queue in enumerate(self._queues) if queue and index not in self.blocked]
            if not heads:
                return None
            item = min(heads, key=lambda head: head.arrival)
            self._queues[item.channel].popleft()
        self._deliver(item)
        return item.payload

    def drain(self) -> None:
        while self.poll() is not None:
            pass

    def pass_time(self, milliseconds: int, *, fire: bool = True) -> None:
        """Let time pass; `fire`: the timer fires if it is due."""
        self.now_ms += milliseconds
        if fire:
            self.fire()

    def fire(self) -> None:
        if self.timer is not None and self.now_ms >= self.timer.at_ms:
            due, self.timer = self.timer, None
            self._obey(self.handler.timeout(due.checkpoint_id, self.now_ms))

    def close(self) -> None:
        self._obey(self.handler.close())

    def _deliver(self, item: _Item) -> None:
        match item.payload:
            case Data() as data:
                self.output.append(data)
                if item.channel in self._recording:
                    self._record(data)
                if self.handler.alignment_times.started_ms is not None:
                    self.read_while_aligning += data.size_bytes
            case Cancel(checkpoint_id):
                self._obey(self.handler.cancel(item.channel, CheckpointId(checkpoint_id)))
            case End():
                self._obey(self.handler.end_of_partition(item.channel, self.now_ms))
            case Announcement(announced):
                self._obey(self.handler.announcement(item.channel, item.sequence, announced, self.now_ms))
            case CheckpointBarrier() as arrived:
                if self.handler.alignment_times.started_ms is None:
                    self.read_while_aligning = 0
                self._obey(self.handler.barrier(item.channel, arrived, self.now_ms))

    def _obey(self, commands: tuple[Command, ...]) -> None:
        self.commands += commands
        for command in commands:
            match command:
                case BlockChannel(channel):
                    self.blocked.add(channel)
                case UnblockChannel(channel):
                    self.blocked.discard(channel)
                case InitInputs(of):
                    self.initialised.append(of)
                case StartRecording(channel):
                    self._recording.add(channel)
                case StopRecording(channel):
                    self._recording.remove(channel)
                    barrier_at = self._barrier_at.get((channel, self.initialised[-1].checkpoint_id), 0)
                    for item in self._queues[channel]:
                        if item.sequence < barrier_at and isinstance(item.payload, Data):
                            self._record(item.payload)
                case Prioritise(channel, checkpoint_id, sequence):
                    self._prioritise(channel, checkpoint_id, sequence)
                case TriggerCheckpoint(of):
                    self.triggered.append(of)
                    self.cuts[of.checkpoint_id] = len(self.output)
                case AbortCheckpoint():
                    self.aborted.append(command)
                case ArmTimer():
                    assert self.timer is None, "there is never more than one timer"
                    self.timer = command
                case CancelTimer():
                    self.timer = None

    def _record(self, data: Data) -> None:
        self.recorded.append(data)
        self.channel_state.setdefault(self.initialised[-1].checkpoint_id, []).append(data)

    def _prioritise(self, channel: int, checkpoint_id: int, sequence: int) -> None:
        queue = self._queues[channel]
        item = next(item for item in queue if item.sequence == sequence)
        assert isinstance(item.payload, CheckpointBarrier) and item.payload.checkpoint_id == checkpoint_id
        queue.remove(item)
        self._ahead.append(_Item(item.arrival, channel, sequence, item.payload.unaligned()))
