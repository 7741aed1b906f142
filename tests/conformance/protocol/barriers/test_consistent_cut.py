"""Consistent cut: snapshot and channel state together are everything before the barrier, on every channel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from milepost.protocol.subtask.barrier_events import Alignment, CheckpointBarrier
from milepost_testkit import profiles
from milepost_testkit.tasks.input_gate import (
    Cancel,
    Data,
    End,
    InputGate,
    Payload,
    barrier,
    timeoutable,
    unaligned,
)

TIMEOUT_MS = 10


@dataclass(frozen=True)
class Plan:
    """What one channel carries for one checkpoint: `data` buffers, then `then`."""

    data: int
    then: str


@dataclass
class Sender:
    """One channel as its sender fills it.

    Attributes:
        kinds: of the checkpoints, by id; the same for all senders.
        before: checkpoint -> how much had been sent before its barrier.
    """

    gate: InputGate
    channel: int
    kinds: list[str]
    plans: list[Plan]
    sent: list[Data] = field(default_factory=list)
    before: dict[int, int] = field(default_factory=dict)

    def payloads(self) -> Iterator[Payload]:
        """One payload after the other; each timestamp is that of its request."""
        for checkpoint_id, plan in enumerate(self.plans, start=1):
            for _ in range(plan.data):
                self.sent.append(Data(f"{self.channel}/{len(self.sent)}"))
                yield self.sent[-1]
            if plan.then == "cancel":
                yield Cancel(checkpoint_id)
            elif plan.then == "end":
                yield End()
                return
            elif plan.then != "skip":
                self.before[checkpoint_id] = len(self.sent)
                yield self._barrier(checkpoint_id, overtake=plan.then == "overtake")

    def sent_before(self, checkpoint_id: int) -> list[Data]:
        """Without a barrier of its own the channel has ended: all of it precedes."""
        return self.sent[: self.before.get(checkpoint_id, len(self.sent))]

    def _barrier(self, checkpoint_id: int, *, overtake: bool) -> CheckpointBarrier:
        match self.kinds[checkpoint_id % len(self.kinds)]:
            case "aligned":
                return barrier(checkpoint_id, self.gate.now_ms)
            case "timeoutable" if not overtake:
                return timeoutable(checkpoint_id, self.gate.now_ms, TIMEOUT_MS)
        return unaligned(checkpoint_id, self.gate.now_ms)


plans = st.builds(
    Plan, st.integers(0, 3), st.sampled_from(["barrier"] * 12 + ["overtake"] * 3 + ["skip", "cancel", "end"])
)
kinds = st.sampled_from(["timeoutable"] * 3 + ["unaligned", "aligned"])
actions = st.sampled_from(["put 0", "put 1", "put 2"] * 2 + ["poll", "drain", "time", "time, late timer"])


@profiles.examples(share=3)
@given(
    st.sets(st.integers(0, 2)),
    st.lists(kinds, min_size=1, max_size=4),
    st.lists(st.lists(plans, min_size=4, max_size=4), min_size=1, max_size=3),
    st.lists(actions, max_size=60),
)
def test_snapshot_and_channel_state_are_all_that_precedes_the_barriers(
    local: set[int], kinds: list[str], plans: list[list[Plan]], script: list[str]
) -> None:
    """Nothing lost, nothing twice (exactly once): aligned, unaligned and changing; whatever is cancelled or skipped."""
    gate = InputGate(len(plans), local=frozenset(local))
    senders = [Sender(gate, channel, kinds, of_channel) for channel, of_channel in enumerate(plans)]
    streams = [sender.payloads() for sender in senders]
    for action in script:
        if action == "poll":
            gate.poll()
        elif action == "drain":
            gate.drain()
        elif action.startswith("time"):
            gate.pass_time(TIMEOUT_MS + 1, fire=action == "time")
        else:
            channel = int(action.removeprefix("put ")) % len(plans)
            gate.put(channel, *[payload for payload in [next(streams[channel], None)] if payload is not None])
    for channel, stream in enumerate(streams):
        gate.put(channel, *stream)
    gate.drain()
    assert gate.blocked <= gate.handler.blocked_channels
    for trigger in gate.triggered:
        checkpoint_id = trigger.checkpoint_id
        if checkpoint_id in gate.aborted_ids or not gate.handler.all_received(checkpoint_id):
            continue
        snapshot = gate.output[: gate.cuts[checkpoint_id]]
        state = gate.channel_state.get(checkpoint_id, [])
        assert trigger.alignment is Alignment.UNALIGNED or state == []
        for sender in senders:
            of_channel = [item for item in (*snapshot, *state) if item.name.startswith(f"{sender.channel}/")]
            assert of_channel == sender.sent_before(checkpoint_id)
