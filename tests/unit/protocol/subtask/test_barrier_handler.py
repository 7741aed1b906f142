"""The barrier handler: legal events, and invariants after every sequence of events."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.errors import ProtocolViolation
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.subtask import barrier_handler
from milepost.protocol.subtask.barrier_channels import InputChannels
from milepost.protocol.subtask.barrier_events import (
    AbortCheckpoint,
    Alignment,
    AlignmentTimes,
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
from milepost.protocol.subtask.barrier_states import (
    ALIGNMENT_RULES,
    AlignmentEvent,
    AlignmentState,
    Condition,
    Step,
    transition,
)
from milepost_testkit import profiles, wording

TIMEOUT_MS = 100
WAITING = {AlignmentState.WAITING_FOR_FIRST, AlignmentState.ALTERNATING_WAITING_FOR_FIRST}


def _barrier(checkpoint_id: int, alignment: Alignment) -> CheckpointBarrier:
    timeout_ms = TIMEOUT_MS if alignment is Alignment.TIMEOUTABLE else None
    return CheckpointBarrier(CheckpointId(checkpoint_id), 0, alignment, timeout_ms)


ALIGNED, TIMEOUTABLE, UNALIGNED = (
    _barrier(1, kind) for kind in (Alignment.ALIGNED, Alignment.TIMEOUTABLE, Alignment.UNALIGNED)
)
ONE, TWO = CheckpointId(1), CheckpointId(2)


def _alternating(channels: int = 2) -> BarrierHandler:
    return BarrierHandler(channels, alternating=True)


def _aligned(channels: int = 2) -> BarrierHandler:
    return BarrierHandler(channels, alternating=False)


def _inside(held: object) -> object:
    """Everything a handler holds, as one hashable value."""
    match held:
        case BarrierHandler() | InputChannels():
            return tuple((name, _inside(value)) for name, value in vars(held).items())
        case set():
            return frozenset(held)
        case dict():
            return tuple(sorted(held.items()))
    return held


def _refused(handler: BarrierHandler, event: Callable[[], object]) -> None:
    """The event raises, and the handler is as it was."""
    before = _inside(handler)
    with wording.raises(ProtocolViolation):
        event()
    assert _inside(handler) == before


@pytest.mark.parametrize(
    ("checkpoint_id", "alignment", "timeout_ms"),
    [
        (0, Alignment.ALIGNED, None),
        (1, Alignment.TIMEOUTABLE, None),
        (1, Alignment.TIMEOUTABLE, 0),
        (1, Alignment.ALIGNED, 5),
        (1, Alignment.UNALIGNED, 5),
    ],
)
def test_a_barrier_that_contradicts_itself_is_refused(
    checkpoint_id: int, alignment: Alignment, timeout_ms: int | None
) -> None:
    with wording.raises(ProtocolViolation):
        CheckpointBarrier(CheckpointId(checkpoint_id), 0, alignment, timeout_ms)


def test_every_barrier_may_become_unaligned() -> None:
    assert UNALIGNED.unaligned() is UNALIGNED
    assert ALIGNED.unaligned() == TIMEOUTABLE.unaligned() == UNALIGNED


def test_a_handler_needs_a_channel() -> None:
    with wording.raises(ProtocolViolation):
        _aligned(0)


@pytest.mark.parametrize("channel", [-1, 2])
def test_events_of_unknown_channels_are_refused(channel: int) -> None:
    handler = _alternating()
    for event in (
        lambda: handler.announcement(channel, 0, TIMEOUTABLE, 0),
        lambda: handler.barrier(channel, TIMEOUTABLE, 0),
        lambda: handler.cancel(channel, ONE),
        lambda: handler.end_of_partition(channel, 0),
    ):
        _refused(handler, event)


def test_a_channel_that_ended_carries_nothing_more() -> None:
    handler = _alternating()
    handler.end_of_partition(0, 0)
    for event in (
        lambda: handler.announcement(0, 0, TIMEOUTABLE, 0),
        lambda: handler.barrier(0, TIMEOUTABLE, 0),
        lambda: handler.cancel(0, ONE),
        lambda: handler.end_of_partition(0, 0),
    ):
        _refused(handler, event)


def test_a_closed_handler_accepts_only_late_timers() -> None:
    handler = _alternating()
    assert handler.announcement(0, 0, TIMEOUTABLE, 0) == (ArmTimer(ONE, TIMEOUT_MS),)
    assert handler.close() == (CancelTimer(ONE),)
    assert handler.close() == ()
    assert handler.timeout(ONE, TIMEOUT_MS) == ()
    assert handler.all_received(ONE)
    for event in (
        lambda: handler.announcement(1, 0, TIMEOUTABLE, 0),
        lambda: handler.barrier(0, TIMEOUTABLE, 0),
        lambda: handler.cancel(0, ONE),
        lambda: handler.end_of_partition(0, 0),
    ):
        _refused(handler, event)


def test_a_repeated_barrier_of_a_channel_is_refused() -> None:
    handler = _alternating()
    handler.announcement(0, 3, TIMEOUTABLE, 0)
    _refused(handler, lambda: handler.announcement(0, 3, TIMEOUTABLE, 0))
    handler.barrier(0, TIMEOUTABLE, 0)
    _refused(handler, lambda: handler.announcement(0, 3, TIMEOUTABLE, 0))
    _refused(handler, lambda: handler.barrier(0, TIMEOUTABLE, 0))


def test_an_unaligned_barrier_is_not_announced() -> None:
    handler = _alternating()
    _refused(handler, lambda: handler.announcement(0, 0, UNALIGNED, 0))


def test_a_handler_that_only_aligns_refuses_unaligned_barriers() -> None:
    handler = _aligned()
    _refused(handler, lambda: handler.barrier(0, UNALIGNED, 0))
    assert handler.barrier(0, TIMEOUTABLE, 0) == (BlockChannel(0),)
    _refused(handler, lambda: handler.barrier(1, UNALIGNED, 0))
    _refused(handler, lambda: handler.timeout(ONE, 200))
    assert handler.barrier(1, TIMEOUTABLE, 200) == (
        BlockChannel(1), TriggerCheckpoint(TIMEOUTABLE), UnblockChannel(0), UnblockChannel(1),
    )  # fmt: skip


def test_a_checkpoint_without_timeout_never_becomes_unaligned() -> None:
    first = ALIGNED
    announced, collecting = _alternating(), _alternating()
    announced.announcement(0, 0, first, 0)
    _refused(announced, lambda: announced.timeout(ONE, 10**9))
    assert collecting.barrier(0, first, 0) == (BlockChannel(0),)
    _refused(collecting, lambda: collecting.timeout(ONE, 10**9))
    assert TriggerCheckpoint(first) in collecting.barrier(1, first, 10**9)


def test_a_timer_does_not_fire_early() -> None:
    handler = _alternating()
    handler.barrier(0, TIMEOUTABLE, 0)
    _refused(handler, lambda: handler.timeout(ONE, TIMEOUT_MS - 1))
    assert TriggerCheckpoint(UNALIGNED) in handler.timeout(ONE, TIMEOUT_MS)


def test_a_timer_that_fires_again_changes_nothing() -> None:
    handler = _alternating(3)
    handler.announcement(0, 0, TIMEOUTABLE, 0)
    assert handler.timeout(ONE, TIMEOUT_MS) == (Prioritise(0, ONE, 0),)
    assert handler.state is AlignmentState.FIRST_UNALIGNED
    assert handler.timeout(ONE, TIMEOUT_MS) == ()
    assert handler.announcement(1, 4, TIMEOUTABLE, 0) == (Prioritise(1, ONE, 4),)
    handler.barrier(0, UNALIGNED, TIMEOUT_MS)
    assert handler.state is AlignmentState.COLLECTING_UNALIGNED
    assert handler.timeout(ONE, TIMEOUT_MS) == ()
    assert handler.timeout(TWO, TIMEOUT_MS) == ()


def test_a_channel_must_not_end_before_the_barrier_it_announced() -> None:
    """Else a checkpoint could end without ever having been triggered."""
    handler = _alternating()
    handler.announcement(0, 0, TIMEOUTABLE, 0)
    _refused(handler, lambda: handler.end_of_partition(0, 0))


def test_announcements_of_checkpoints_that_are_over_are_ignored() -> None:
    handler = _alternating()
    handler.cancel(0, TWO)
    assert handler.announcement(0, 0, TIMEOUTABLE, 0) == ()
    assert handler.announcement(0, 0, _barrier(2, Alignment.TIMEOUTABLE), 0) == ()
    assert not handler.pending


def test_an_announced_checkpoint_is_cancelled_also_before_its_first_barrier() -> None:
    handler = _alternating()
    handler.announcement(0, 0, TIMEOUTABLE, 0)
    commands = handler.cancel(1, ONE)
    assert [type(item) for item in commands] == [CancelTimer, AbortCheckpoint]
    assert handler.all_received(ONE)


def test_all_received_refuses_a_checkpoint_that_has_not_started() -> None:
    handler = _alternating(1)
    with wording.raises(ProtocolViolation):
        handler.all_received(ONE)
    handler.barrier(0, UNALIGNED, 0)
    assert handler.all_received(ONE)
    handler.end_of_partition(0, 0)
    assert handler.all_received(TWO), "nothing can arrive any more"


def test_a_late_barrier_is_dropped_without_freeing_a_channel_that_a_newer_one_blocks() -> None:
    handler = _alternating()
    newer = _barrier(2, Alignment.ALIGNED)
    handler.barrier(0, newer, 0)
    assert handler.barrier(0, ALIGNED, 0) == ()
    assert handler.barrier(1, UNALIGNED, 0) == ()
    assert handler.barrier(1, ALIGNED, 0) == (UnblockChannel(1),)
    assert handler.blocked_channels == {0}


def test_what_two_channels_agree_on_is_measured_once() -> None:
    handler = _alternating(3)
    handler.barrier(0, ALIGNED, 5)
    handler.end_of_partition(0, 7)
    assert handler.alignment_times == AlignmentTimes(started_ms=5, start_delay_ms=5)
    assert AlignmentTimes(start_delay_ms=3).end(9) == AlignmentTimes(duration_ms=0, start_delay_ms=3)


def test_a_reset_refuses_channels_still_blocked_or_recording() -> None:
    """A channel that stayed blocked would never be read again."""
    blocked, recorded = InputChannels(2), InputChannels(2)
    assert list(blocked.block(1)) == [BlockChannel(1)]
    with wording.raises(ProtocolViolation):
        blocked.reset()
    assert list(recorded.start_recording()) == [StartRecording(0), StartRecording(1)]
    with wording.raises(ProtocolViolation):
        recorded.reset()


# The table.


def test_every_state_answers_every_event() -> None:
    for state in AlignmentState:
        for event in AlignmentEvent:
            rows = [rule for rule in ALIGNMENT_RULES if rule.state is state and rule.event is event]
            assert [rule.when for rule in rows].count(Condition.ALWAYS) == 1
            assert rows[-1].when is Condition.ALWAYS


def test_every_row_that_ends_a_checkpoint_resets() -> None:
    for rule in ALIGNMENT_RULES:
        ends = rule.after in WAITING and (rule.state not in WAITING or rule.event is AlignmentEvent.ABORT)
        if ends or Step.RESET in rule.steps:
            assert rule.steps[-2:] == (Step.UNBLOCK_ALL, Step.RESET)
            assert rule.after in WAITING


# All sequences of events.


class Ledger:
    """What the commands of one handler say, and whether they make sense together."""

    def __init__(self) -> None:
        self.blocked: set[int] = set()
        self.recording: set[int] = set()
        self.armed: CheckpointId | None = None
        self.initialised: CheckpointBarrier | None = None
        self.triggered: list[CheckpointBarrier] = []
        self.aborted: list[CheckpointId] = []

    def enter(self, commands: tuple[Command, ...]) -> None:
        for command in commands:
            match command:
                case BlockChannel(channel):
                    assert channel not in self.blocked
                    self.blocked.add(channel)
                case UnblockChannel(channel):
                    self.blocked.discard(channel)
                case StartRecording(channel):
                    assert self.initialised is not None and self.initialised.is_unaligned
                    assert channel not in self.recording | self.blocked
                    self.recording.add(channel)
                case StopRecording(channel):
                    self.recording.remove(channel)
                case ArmTimer(checkpoint_id):
                    assert self.armed is None
                    self.armed = checkpoint_id
                case CancelTimer(checkpoint_id):
                    assert self.armed == checkpoint_id
                    self.armed = None
                case InitInputs(of):
                    self.initialised = of
                case TriggerCheckpoint(of):
                    assert not self.triggered or of.checkpoint_id > self.triggered[-1].checkpoint_id, "ids rise"
                    assert of.checkpoint_id not in self.aborted
                    assert not of.is_unaligned or of == self.initialised, "inputs are initialised first"
                    self.triggered.append(of)
                case AbortCheckpoint(checkpoint_id):
                    assert not self.aborted or checkpoint_id > self.aborted[-1], "each at most once"
                    self.aborted.append(checkpoint_id)

    def check(self, handler: BarrierHandler) -> None:
        """What is true between any two events."""
        assert handler.blocked_channels == self.blocked & handler.open_channels
        assert handler.recording_channels == self.recording
        if not handler.pending:
            current = handler.current_checkpoint_id
            assert handler.state in WAITING
            assert not handler.blocked_channels
            assert not self.recording
            assert self.armed is None
            assert current == 0 or current in self.aborted or self.triggered[-1].checkpoint_id == current


Happening = tuple[str, int, int, Alignment, int]
"""Event, channel, checkpoint id, alignment, time."""


def _happen(handler: BarrierHandler, ledger: Ledger, happening: Happening) -> tuple[Command, ...]:
    what, channel, checkpoint_id, alignment, now_ms = happening
    barrier = _barrier(checkpoint_id, alignment)
    match what:
        case "announcement":
            return handler.announcement(channel, 0, barrier, now_ms)
        case "barrier":
            return handler.barrier(channel, barrier, now_ms)
        case "cancel":
            return handler.cancel(channel, CheckpointId(checkpoint_id))
        case "end":
            return handler.end_of_partition(channel, now_ms)
    commands = handler.timeout(CheckpointId(checkpoint_id), now_ms)
    if ledger.armed == checkpoint_id:
        ledger.armed = None
    return commands


def _step(handler: BarrierHandler, ledger: Ledger, happening: Happening, before: object) -> bool:
    """Let it happen; `before`: what the handler holds. Returns whether it was legal."""
    try:
        commands = _happen(handler, ledger, happening)
    except ProtocolViolation:
        assert _inside(handler) == before, "an illegal event leaves the handler untouched"
        return False
    ledger.enter(commands)
    ledger.check(handler)
    return True


happenings = st.tuples(
    st.sampled_from(["announcement", "barrier", "barrier", "cancel", "end", "timeout"]),
    st.integers(0, 3),
    st.integers(1, 3),
    st.sampled_from(list(Alignment)),
    st.sampled_from([0, TIMEOUT_MS, TIMEOUT_MS + 1]),
)


@profiles.examples(share=3)
@given(st.integers(1, 4), st.booleans(), st.lists(happenings, max_size=25))
def test_after_any_events_nothing_is_triggered_twice_and_no_channel_stays_blocked(
    channels: int, alternating: bool, events: list[Happening]
) -> None:
    handler, ledger = BarrierHandler(channels, alternating=alternating), Ledger()
    for happening in events:
        _step(handler, ledger, happening, _inside(handler))


@profiles.examples(share=2)
@given(
    st.permutations([0, 1, 2]),
    st.lists(st.sampled_from([0, TIMEOUT_MS, TIMEOUT_MS + 1]), min_size=3, max_size=3).map(sorted),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.sets(st.integers(0, 2)),
    st.sets(st.integers(1, 2)),
)
@example([0, 1, 2], [0, TIMEOUT_MS + 1, TIMEOUT_MS + 1], [False, True, True], {0, 1, 2}, set())
def test_timer_and_late_barriers_together_trigger_once(
    order: list[int], times: list[int], fires: list[bool], announced: set[int], ends: set[int]
) -> None:
    """In any order of barriers, ends and the timer: one trigger, all channels received, nothing left behind."""
    handler, ledger = _alternating(3), Ledger()
    for channel in sorted(announced - {order[index] for index in ends}):
        ledger.enter(handler.announcement(channel, 0, TIMEOUTABLE, 0))
    for index, channel in enumerate(order):
        if index in ends:
            ledger.enter(handler.end_of_partition(channel, times[index]))
        else:
            overtakes = handler.state in {AlignmentState.FIRST_UNALIGNED, AlignmentState.COLLECTING_UNALIGNED}
            arrived = UNALIGNED if overtakes and channel in announced else TIMEOUTABLE
            ledger.enter(handler.barrier(channel, arrived, times[index]))
        ledger.check(handler)
        if fires[index] and times[index] >= TIMEOUT_MS:
            ledger.enter(_happen(handler, ledger, ("timeout", 0, 1, Alignment.TIMEOUTABLE, times[index])))
            ledger.check(handler)
    assert [item.checkpoint_id for item in ledger.triggered] == [1]
    assert handler.all_received(ONE)
    assert ledger.aborted == []
    assert not handler.blocked_channels


def _everything_that_can_happen(channels: int, ids: tuple[int, ...]) -> Iterator[Happening]:
    for checkpoint_id in ids:
        yield ("timeout", 0, checkpoint_id, Alignment.TIMEOUTABLE, TIMEOUT_MS)
        for channel in range(channels):
            yield ("cancel", channel, checkpoint_id, Alignment.ALIGNED, 0)
            yield ("barrier", channel, checkpoint_id, Alignment.ALIGNED, 0)
            yield ("barrier", channel, checkpoint_id, Alignment.UNALIGNED, 0)
            for now_ms in (0, TIMEOUT_MS + 1):
                yield ("barrier", channel, checkpoint_id, Alignment.TIMEOUTABLE, now_ms)
            yield ("announcement", channel, checkpoint_id, Alignment.TIMEOUTABLE, 0)
    for channel in range(channels):
        for now_ms in (0, TIMEOUT_MS + 1):
            yield ("end", channel, ids[0], Alignment.ALIGNED, now_ms)


def _situation(handler: BarrierHandler) -> object:
    """What decides what a handler does next: all but its measurements."""
    return tuple(_inside(value) for name, value in vars(handler).items() if name != "_times")


def _explore(handler: BarrierHandler, ids: tuple[int, ...]) -> int:
    """Every sequence of events, each reachable situation once; returns the number of situations."""
    everything = list(_everything_that_can_happen(len(handler.open_channels), ids))
    seen = {_situation(handler)}
    frontier = [(handler, Ledger())]
    while frontier:
        reached = frontier.pop()
        before, pickled = _inside(reached[0]), pickle.dumps(reached)
        for happening in everything:
            successor, entries = pickle.loads(pickled)
            if _step(successor, entries, happening, before) and (situation := _situation(successor)) not in seen:
                seen.add(situation)
                frontier.append((successor, entries))
    return len(seen)


@pytest.mark.long
def test_every_reachable_situation_keeps_the_rules_and_every_row_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exhaustive for three channels and one checkpoint, and for two channels and two checkpoints."""
    used: set[tuple[AlignmentState, AlignmentEvent, tuple[Step, ...]]] = set()

    def noting(
        state: AlignmentState, event: AlignmentEvent, holding: Collection[Condition]
    ) -> tuple[tuple[Step, ...], AlignmentState]:
        steps, after = transition(state, event, holding)
        used.add((state, event, steps))
        return steps, after

    monkeypatch.setattr(barrier_handler, "transition", noting)
    situations = 0
    for alternating in (False, True):
        situations += _explore(BarrierHandler(3, alternating=alternating), (1,))
        situations += _explore(BarrierHandler(2, alternating=alternating), (1, 2))
    assert situations > 100
    legal = {(rule.state, rule.event, rule.steps) for rule in ALIGNMENT_RULES if rule.after is not None}
    assert used == legal
