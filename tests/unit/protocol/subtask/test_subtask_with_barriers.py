"""Barrier handler, coordinator and channel-state writer together, with arbitrary channels and clocks."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from milepost.protocol.exchange.channel_file import InFlightBuffer, InputChannel
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.subtask.barrier_events import (
    AbortCheckpoint,
    Alignment,
    CheckpointBarrier,
    Command,
    InitInputs,
    TriggerCheckpoint,
)
from milepost.protocol.subtask.snapshot import SubmitUpload
from milepost.protocol.subtask.subtask_commands import (
    AcknowledgeCheckpoint,
    BroadcastBarrier,
    BroadcastCancelMarker,
    DeclineCheckpoint,
)
from milepost_testkit.tasks.input_gate import Cancel, Data, End, InputGate
from milepost_testkit.tasks.subtask_driver import SubtaskDriver, data

CHANNELS = 3
TIMEOUT_MS = 50


class _Recorder(SubtaskDriver):
    """A subtask whose in-flight data is recorded while it arrives, not all together."""

    def __init__(self) -> None:
        super().__init__()
        self.collecting: CheckpointId | None = None

    def collect(self, checkpoint_id: CheckpointId) -> None:
        self.collecting = checkpoint_id


@dataclass
class _Host(InputGate):
    """An input gate that passes the handler's commands on to a subtask, as the host of a Spark task does."""

    subtask: _Recorder = field(default_factory=_Recorder)
    stored: dict[int, list[InFlightBuffer]] = field(default_factory=dict)

    def _obey(self, commands: tuple[Command, ...]) -> None:
        for command in commands:
            super()._obey((command,))
            self._hand_over_recorded()
            match command:
                case InitInputs(barrier):
                    self.subtask.init(barrier)
                case TriggerCheckpoint(barrier):
                    self.subtask.checkpoint(barrier)
                case AbortCheckpoint(checkpoint_id, reason, detail):
                    self.subtask.execute(self.subtask.coordinator.abort_on_barrier(checkpoint_id, reason, detail))
        self._hand_over_recorded()
        collecting = self.subtask.collecting
        if collecting is not None and self.handler.all_received(collecting):
            self.subtask.execute(self.subtask.coordinator.in_flight_collected(collecting))
            self.subtask.collecting = None

    def _hand_over_recorded(self) -> None:
        buffers = [data(1, recorded.name) for recorded in self.recorded]
        self.recorded.clear()
        if buffers:
            assert self.subtask.collecting is not None, "data is recorded for a checkpoint that collects"
            self.stored.setdefault(self.subtask.collecting, []).extend(buffers)
            self.subtask.record(self.subtask.collecting, InputChannel("orders", 0), buffers)


channels = st.integers(0, CHANNELS - 1)
events = st.one_of(
    st.tuples(st.just("data"), channels, st.just(0)),
    st.tuples(st.just("data"), channels, st.just(0)),
    *[st.tuples(st.just("barrier"), channels, st.sampled_from([1, 1, 1, 2]))] * 3,
    st.tuples(st.sampled_from(["data", "cancel", "end"]), channels, st.just(1)),
    st.tuples(st.just("time"), st.just(0), st.sampled_from([1, TIMEOUT_MS + 1])),
    st.tuples(st.just("read"), st.just(0), st.integers(1, 3)),
    st.tuples(st.just("upload"), st.just(0), st.just(0)),
)


def _barrier(checkpoint_id: int, alignment: Alignment) -> CheckpointBarrier:
    timeout_ms = TIMEOUT_MS if alignment is Alignment.TIMEOUTABLE else None
    return CheckpointBarrier(CheckpointId(checkpoint_id), 1_000, alignment, timeout_ms)


@given(
    st.lists(events, min_size=15, max_size=60),
    st.lists(st.sampled_from([Alignment.ALIGNED, Alignment.TIMEOUTABLE, Alignment.UNALIGNED]), min_size=6, max_size=6),
)
@example(
    [
        ("data", 0, 0),
        ("barrier", 0, 1),
        ("data", 1, 0),
        ("time", 0, TIMEOUT_MS + 1),
        ("barrier", 1, 1),
        ("barrier", 2, 1),
    ],
    [Alignment.TIMEOUTABLE] * 6,
)
@example(
    # The next checkpoint starts while the file of a whole one is being written.
    [
        *[("data", 0, 0)] * 10,
        ("barrier", 0, 2),
        ("barrier", 1, 2),
        ("barrier", 2, 2),
        ("barrier", 0, 1),
        ("read", 0, 20),
    ],
    [Alignment.UNALIGNED] * 6,
)
def test_each_checkpoint_of_a_subtask_is_answered_once_and_keeps_what_it_overtook(
    events: list[tuple[str, int, int]], alignments: list[Alignment]
) -> None:
    host = _Host(CHANNELS)
    subtask = host.subtask
    sent = [0] * CHANNELS
    ended: set[int] = set()
    for number, (kind, channel, amount) in enumerate(events):
        if kind == "time":
            host.pass_time(amount)
        elif kind == "read":
            for _ in range(amount):
                host.poll()
        elif kind == "upload":
            _end_uploads(subtask)
        elif channel in ended:
            continue
        elif kind == "data":
            host.put(channel, Data(str(number)))
        elif kind == "end":
            ended.add(channel)
            host.put(channel, End())
        elif sent[channel] + amount <= len(alignments):
            sent[channel] += amount
            checkpoint_id = sent[channel]
            if kind == "cancel":
                host.put(channel, Cancel(checkpoint_id))
            else:
                host.put(channel, _barrier(checkpoint_id, alignments[checkpoint_id - 1]))
    host.drain()
    _end_uploads(subtask)
    aborted = {command.checkpoint_id for command in host.aborted}
    triggered = set(host.triggered_ids)
    acknowledged = [command.checkpoint_id for command in subtask.order if isinstance(command, AcknowledgeCheckpoint)]
    declined = [command.checkpoint_id for command in subtask.order if isinstance(command, DeclineCheckpoint)]
    assert set(acknowledged) | aborted >= triggered
    assert sorted(declined) == sorted(aborted)
    assert [
        command.checkpoint_id for command in subtask.order if isinstance(command, BroadcastCancelMarker)
    ] == declined
    barriers = [command.barrier.checkpoint_id for command in subtask.order if isinstance(command, BroadcastBarrier)]
    assert barriers == [command.checkpoint_id for command in subtask.order if isinstance(command, SubmitUpload)]
    assert set(barriers) == triggered
    for checkpoint_id, result in subtask.results.items():
        if checkpoint_id not in aborted and result.done:
            assert result.failure is None
            assert result.size_bytes == len(host.stored.get(checkpoint_id, []))
    subtask.spill.execute(subtask.spill.writer.close())
    assert subtask.spill.writer.held == ()
    assert len(subtask.spill.released) == sum(len(buffers) for buffers in host.stored.values())


def _end_uploads(subtask: SubtaskDriver) -> None:
    while subtask.spill.to_write:
        subtask.spill.store()
    for checkpoint_id in sorted(subtask.uploads):
        subtask.end_upload(checkpoint_id)
