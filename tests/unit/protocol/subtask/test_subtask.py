"""In any order of barriers, notifications and uploads: one snapshot per id, one end of it, and no leak."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule

from milepost.errors import ProtocolViolation, StoreUnavailable
from milepost.protocol.exchange.channel_file import InFlightBuffer
from milepost.protocol.exchange.channel_state import share_files
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.subtask.barrier_events import Alignment, CheckpointBarrier
from milepost.protocol.subtask.snapshot import SnapshotState, SubmitUpload
from milepost.protocol.subtask.subtask import MAX_ABORT_MARKS, Commands, SubtaskCoordinator
from milepost.protocol.subtask.subtask_commands import (
    AcknowledgeCheckpoint,
    BroadcastBarrier,
    CollectInFlight,
    DeclineCheckpoint,
    DiscardSnapshot,
    FinishInput,
    FreezeState,
)
from milepost_testkit import wording
from milepost_testkit.tasks.input_gate import unaligned
from milepost_testkit.tasks.subtask_driver import SpillFile, SubtaskDriver, barrier, data

ASYNC = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
CANCELLED = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
FAILED = CheckpointFailureReason.TASK_CHECKPOINT_FAILURE
OPERATORS = ["join/0", "window/0"]

Begun = tuple[int, int, Alignment, list[InFlightBuffer]]
Event = Callable[[CheckpointBarrier], Commands]

ids = st.integers(1, 9)
operators = st.integers(0, len(OPERATORS) - 1)


class SubtaskMachine(RuleBasedStateMachine):
    """Two operators of one Spark task, each a subtask, which share a file of channel state."""

    begun = Bundle("begun")

    def __init__(self) -> None:
        super().__init__()
        writers = share_files(OPERATORS)
        self.spill = SpillFile(writers[OPERATORS[0]])
        assert set(writers.values()) == {self.spill.writer}
        self.subtasks = [SubtaskDriver(uid, self.spill) for uid in OPERATORS]
        self.begun_ids: list[set[int]] = [set() for _ in OPERATORS]
        self.closed: set[int] = set()
        self.added: list[InFlightBuffer] = []
        self.broken = False
        self.ended = False

    @rule(
        target=begun,
        index=operators,
        checkpoint_id=ids,
        alignment=st.sampled_from(Alignment),
        buffers=st.integers(0, 2),
    )
    def begin(self, index: int, checkpoint_id: int, alignment: Alignment, buffers: int) -> object:
        if checkpoint_id in self.begun_ids[index] or index in self.closed or self.broken:
            return multiple()
        self.begun_ids[index].add(checkpoint_id)
        subtask = self.subtasks[index]
        in_flight = [data(1, (index, checkpoint_id, number)) for number in range(buffers)]
        self._with_in_flight(
            subtask, in_flight, subtask.coordinator.init_input_checkpoint, barrier(checkpoint_id, alignment)
        )
        return index, checkpoint_id, alignment, in_flight

    @rule(checkpoint=begun, broken_state=st.booleans(), finished=st.booleans())
    def trigger(self, checkpoint: Begun, broken_state: bool, finished: bool) -> None:
        index, checkpoint_id, alignment, in_flight = checkpoint
        if self.broken or self.ended:
            return
        subtask = self.subtasks[index]
        subtask.freeze_error = FAILED if broken_state else None
        trigger = partial(subtask.coordinator.checkpoint_state, finished=finished)
        self._with_in_flight(subtask, in_flight, trigger, barrier(checkpoint_id, alignment))

    def _with_in_flight(
        self, subtask: SubtaskDriver, in_flight: list[InFlightBuffer], event: Event, seen: CheckpointBarrier
    ) -> None:
        before, subtask.in_flight = len(subtask.all(CollectInFlight)), in_flight
        subtask.execute(event(seen))
        self.added += in_flight * (len(subtask.all(CollectInFlight)) - before)

    @rule(index=operators, checkpoint_id=ids, running=st.booleans())
    def abort_notified(self, index: int, checkpoint_id: int, running: bool) -> None:
        self.subtasks[index].abort_notified(checkpoint_id, running=running)

    @rule(index=operators, checkpoint_id=ids)
    def abort_on_barrier(self, index: int, checkpoint_id: int) -> None:
        subtask = self.subtasks[index]
        subtask.execute(
            subtask.coordinator.abort_on_barrier(CheckpointId(checkpoint_id), CANCELLED, "a sender declined")
        )

    @rule(index=operators, checkpoint_id=ids, running=st.booleans())
    def complete_notified(self, index: int, checkpoint_id: int, running: bool) -> None:
        subtask = self.subtasks[index]
        subtask.execute(subtask.coordinator.notify_complete(CheckpointId(checkpoint_id), running=running))

    @rule(
        index=operators,
        choice=st.randoms(use_true_random=False),
        outcome=st.sampled_from(["stored", "failed"]),
    )
    def end_upload(self, index: int, choice: object, outcome: str) -> None:
        subtask = self.subtasks[index]
        if not subtask.uploads:
            return
        checkpoint_id = choice.choice(sorted(subtask.uploads))  # type: ignore[attr-defined]
        if outcome == "failed":
            subtask.fail_upload(checkpoint_id)
        else:
            subtask.end_upload(checkpoint_id)

    @precondition(lambda self: self.spill.to_write)
    @rule()
    def file_stored(self) -> None:
        self.spill.store()

    @precondition(lambda self: self.spill.to_write and not self.ended)
    @rule()
    def file_not_stored(self) -> None:
        checkpoint_id = self.spill.to_write.pop(0).checkpoint_id
        self.spill.execute(self.spill.writer.write_failed(checkpoint_id, ASYNC, StoreUnavailable("no answer")))
        with_failure = [driver.results.get(checkpoint_id) for driver in self.subtasks]
        assert all(result is None or result.done for result in with_failure)
        self.broken = True

    @rule(index=operators)
    def close_subtask(self, index: int) -> None:
        self.closed.add(index)
        subtask = self.subtasks[index]
        subtask.execute(subtask.coordinator.close())

    @rule()
    def close_writer(self) -> None:
        self.ended = True
        self.closed = set(range(len(OPERATORS)))
        for subtask in self.subtasks:
            subtask.execute(subtask.coordinator.close())
        try:
            self.spill.execute(self.spill.writer.close())
        except StoreUnavailable:
            assert self.broken

    @invariant()
    def one_snapshot_and_one_end_per_id(self) -> None:
        for subtask in self.subtasks:
            frozen = [command.checkpoint_id for command in subtask.all(FreezeState)]  # type: ignore[union-attr]
            assert frozen == sorted(set(frozen))
            acknowledged = [command.checkpoint_id for command in subtask.all(AcknowledgeCheckpoint)]  # type: ignore[union-attr]
            discarded = {command.checkpoint_id for command in subtask.all(DiscardSnapshot)}  # type: ignore[union-attr]
            assert len(acknowledged) == len(set(acknowledged))
            assert not set(acknowledged) & discarded
            assert set(frozen) - set(acknowledged) - discarded == subtask.coordinator.pending_ids
            assert set(acknowledged) <= set(frozen)

    @invariant()
    def a_barrier_precedes_its_snapshot(self) -> None:
        for subtask in self.subtasks:
            sent: set[int] = set()
            for command in subtask.order:
                if isinstance(command, BroadcastBarrier):
                    sent.add(command.barrier.checkpoint_id)
                elif isinstance(command, FreezeState):
                    assert command.checkpoint_id in sent

    @invariant()
    def marks_are_bounded(self) -> None:
        assert all(len(subtask.coordinator.aborted_ids) <= MAX_ABORT_MARKS for subtask in self.subtasks)

    @invariant()
    def every_buffer_is_held_or_was_released_once(self) -> None:
        held = list(self.spill.writer.held)
        accounted = sorted(id(buffer) for buffer in held + self.spill.released)
        assert accounted == sorted(id(buffer) for buffer in self.added)

    @invariant()
    def a_closed_writer_holds_nothing(self) -> None:
        assert not self.ended or self.spill.writer.held == ()

    @invariant()
    def a_whole_result_has_all_buffers_of_its_subtask(self) -> None:
        for index, subtask in enumerate(self.subtasks):
            for checkpoint_id, result in subtask.results.items():
                if result.done and result.failure is None:
                    own = [buffer for buffer in self.added if buffer.payload[:2] == (index, checkpoint_id)]  # type: ignore[index]
                    assert sum(result.buffers.values()) == len(own) == result.size_bytes


TestSubtaskMachine = SubtaskMachine.TestCase


def test_events_of_a_closed_or_unknown_checkpoint_are_refused_and_change_nothing() -> None:
    coordinator = SubtaskCoordinator("join/0")
    with wording.raises(ProtocolViolation):
        coordinator.in_flight_collected(CheckpointId(3))
    with wording.raises(ProtocolViolation):
        coordinator.frozen(CheckpointId(3))
    with wording.raises(ProtocolViolation):
        coordinator.freeze_failed(CheckpointId(3), FAILED, "broken")
    coordinator.close()
    with wording.raises(ProtocolViolation):
        coordinator.init_input_checkpoint(unaligned(3))
    assert (coordinator.last_id, coordinator.pending_ids, coordinator.aborted_ids) == (0, frozenset(), frozenset())


def test_a_second_trigger_waits_for_the_first_to_be_frozen() -> None:
    coordinator = SubtaskCoordinator("join/0")
    coordinator.checkpoint_state(barrier(1))
    with wording.raises(ProtocolViolation):
        coordinator.checkpoint_state(barrier(2))
    assert coordinator.last_id == 1
    assert isinstance(coordinator.frozen(CheckpointId(1))[0], SubmitUpload)


def test_frozen_state_of_a_checkpoint_aborted_in_the_meantime_is_discarded() -> None:
    coordinator = SubtaskCoordinator("join/0")
    coordinator.checkpoint_state(barrier(1))
    coordinator.notify_aborted(CheckpointId(1), running=True)
    assert coordinator.frozen(CheckpointId(1)) == (DiscardSnapshot(CheckpointId(1)),)


def test_a_freeze_that_fails_after_an_abort_still_declines() -> None:
    coordinator = SubtaskCoordinator("join/0")
    coordinator.checkpoint_state(barrier(1))
    coordinator.notify_aborted(CheckpointId(1), running=True)
    commands = coordinator.freeze_failed(CheckpointId(1), FAILED, "broken")
    assert DeclineCheckpoint(CheckpointId(1), FAILED, "broken") in commands
    assert DiscardSnapshot(CheckpointId(1)) not in commands


def test_recording_may_end_after_the_snapshot_was_triggered() -> None:
    """An unaligned checkpoint is triggered at its first barrier; the other channels are recorded up to theirs."""
    coordinator = SubtaskCoordinator("join/0")
    coordinator.init_input_checkpoint(unaligned(1))
    coordinator.checkpoint_state(unaligned(1))
    coordinator.frozen(CheckpointId(1))
    assert coordinator.in_flight_collected(CheckpointId(1)) == (FinishInput(CheckpointId(1)),)
    assert coordinator.in_flight_collected(CheckpointId(1)) == ()


@pytest.mark.parametrize("given_up_by", ["abort on barrier", "close"])
def test_the_end_of_recording_does_nothing_after_an_abort(given_up_by: str) -> None:
    coordinator = SubtaskCoordinator("join/0")
    coordinator.init_input_checkpoint(unaligned(1))
    if given_up_by == "close":
        coordinator.close()
    else:
        coordinator.abort_on_barrier(CheckpointId(1), CANCELLED, "a sender declined")
    assert coordinator.in_flight_collected(CheckpointId(1)) == ()


def test_a_snapshot_names_its_checkpoint() -> None:
    subtask = SubtaskDriver()
    subtask.checkpoint(barrier(4))
    assert subtask.uploads[4].checkpoint_id == 4
    assert subtask.uploads[4].state is SnapshotState.RUNNING
