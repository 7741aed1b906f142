"""Channel state under any order of legal and illegal requests: no leaks, and a refused request changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import ProtocolViolation, StoreUnavailable
from milepost.protocol.exchange.barrier import EventKind
from milepost.protocol.exchange.channel_file import (
    ChannelStateFailure,
    ChannelStateFile,
    ChannelStateResult,
    InFlightBuffer,
    InputChannel,
    Release,
)
from milepost.protocol.exchange.channel_state import ChannelStateWriter
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit import wording
from milepost_testkit.tasks.subtask_driver import CHANNEL, SpillFile, data, stored

ASYNC = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
OWN = CheckpointFailureReason.OPERATOR_ERROR
CAUSE = ChannelStateFailure(OWN, "division by zero")
ME, OTHER, STRANGER = "join/0", "window/0", "stranger/0"
ID = CheckpointId(5)

REQUESTS = ["start", "add", "add event", "finish input", "finish output", "abort", "abort and clean", "take"]
requests = st.tuples(st.sampled_from(REQUESTS), st.sampled_from([ME, OTHER, STRANGER]), st.integers(1, 3))
writes = st.tuples(st.sampled_from(["written", "write failed", "close"]), st.just(""), st.integers(1, 3))


class _Run:
    """A writer under requests; what it took, released and wrote."""

    def __init__(self) -> None:
        self.spill = SpillFile(ChannelStateWriter())
        for subtask in (ME, OTHER):
            self.spill.writer.register(subtask)
        self.added: list[InFlightBuffer] = []
        self.taken: list[tuple[str, int, ChannelStateResult]] = []

    def request(self, name: str, subtask: str, number: int) -> None:
        writer, checkpoint_id = self.spill.writer, CheckpointId(number)
        buffers = [data(1, (subtask, number)), data(1, (subtask, number))]
        calls: dict[str, Callable[[], tuple[object, ...]]] = {
            "start": lambda: writer.start(subtask, checkpoint_id),
            "add": lambda: writer.add_input(subtask, checkpoint_id, CHANNEL, buffers),
            "add event": lambda: writer.add_input(
                subtask, checkpoint_id, CHANNEL, [*buffers, InFlightBuffer(EventKind.CANCEL, 1, None)]
            ),
            "finish input": lambda: writer.finish_input(subtask, checkpoint_id),
            "finish output": lambda: writer.finish_output(subtask, checkpoint_id),
            "abort": lambda: writer.abort(subtask, checkpoint_id, OWN, "division by zero", cleanup=False),
            "abort and clean": lambda: writer.abort(subtask, checkpoint_id, OWN, "division by zero", cleanup=True),
            "close": writer.close,
        }
        if name == "take":
            self.taken.append((subtask, number, writer.take_result(subtask, checkpoint_id)))
        elif name == "written":
            if self.spill.to_write:
                self.spill.store()
        elif name == "write failed":
            if self.spill.to_write:
                failed = self.spill.to_write.pop(0).checkpoint_id
                self.spill.execute(writer.write_failed(failed, ASYNC, StoreUnavailable("no answer")))
        else:
            commands = calls[name]()
            if name == "add":
                self.added += buffers
            elif name == "add event":  # It is accepted only to be released: the checkpoint is past.
                assert len(commands) == 1
                assert isinstance(commands[0], Release)
                return
            self.spill.execute(commands)  # type: ignore[arg-type]


@given(st.lists(st.one_of(requests, requests, requests, writes), max_size=40))
def test_every_buffer_is_held_or_released_once_and_a_refused_request_changes_nothing(
    events: list[tuple[str, str, int]],
) -> None:
    run = _Run()
    writer = run.spill.writer
    for name, subtask, number in events:
        held, registering = writer.held, writer.registering
        ended = [result.done for _, _, result in run.taken]
        try:
            run.request(name, subtask, number)
        except (ProtocolViolation, StoreUnavailable):
            if name != "close":
                assert (writer.held, writer.registering) == (held, registering)
                assert [result.done for _, _, result in run.taken] == ended
        accounted = sorted(id(buffer) for buffer in (*writer.held, *run.spill.released))
        assert accounted == sorted(id(buffer) for buffer in run.added)
    try:
        run.spill.execute(writer.close())
    except StoreUnavailable:
        assert writer.close() == ()
    assert writer.held == ()
    assert sorted(id(buffer) for buffer in run.spill.released) == sorted(id(buffer) for buffer in run.added)
    for subtask, number, result in run.taken:
        assert result.done
        own = [buffer for buffer in run.added if buffer.payload == (subtask, number)]
        assert result.failure is not None or result.size_bytes == len(own)
        assert result.failure is None or (result.file is None and not result.buffers)


def _file(*subtasks: str) -> tuple[ChannelStateFile, dict[str, ChannelStateResult]]:
    file = ChannelStateFile(ID, subtasks)
    results = {subtask: ChannelStateResult() for subtask in subtasks}
    for subtask, result in results.items():
        file.register(subtask, result)
    return file, results


def test_a_file_needs_a_subtask() -> None:
    with wording.raises(ProtocolViolation):
        ChannelStateFile(ID, [])


def test_a_subtask_participates_once_and_only_if_it_is_expected() -> None:
    file, _ = _file(ME)
    for subtask in (ME, STRANGER):
        with wording.raises(ProtocolViolation):
            file.register(subtask, ChannelStateResult())


def test_a_failed_file_accepts_nothing_and_ends_once() -> None:
    file, results = _file(ME)
    assert file.fail(CAUSE) == ()
    late = (data(),)
    assert file.add_input(ME, CHANNEL, late) == (Release(late),)
    assert file.fail(ChannelStateFailure(ASYNC, "later")) == ()
    assert file.written(stored()) == ()
    assert results[ME].failure == CAUSE


def test_nothing_is_stored_that_was_not_to_be_written() -> None:
    file, _ = _file(ME)
    with wording.raises(ProtocolViolation):
        file.written(stored())
    writer = ChannelStateWriter()
    writer.register(ME)
    with wording.raises(ProtocolViolation):
        writer.written(ID, stored())
    writer.start(ME, ID)
    writer.add_input(ME, ID, CHANNEL, [data()])
    with wording.raises(ProtocolViolation):
        writer.write_failed(ID, ASYNC, StoreUnavailable("no answer"))
    assert len(writer.held) == 1
    assert not writer.take_result(ME, ID).done


def _writing() -> tuple[SpillFile, ChannelStateResult]:
    spill = SpillFile(ChannelStateWriter())
    spill.writer.register(ME)
    spill.writer.start(ME, ID)
    spill.writer.add_input(ME, ID, InputChannel("orders", 1), [data()])
    spill.writer.finish_input(ME, ID)
    spill.execute(spill.writer.finish_output(ME, ID))
    return spill, spill.writer.take_result(ME, ID)


@pytest.mark.parametrize("given_up_by", ["abort", "close"])
def test_the_end_of_a_write_of_an_aborted_checkpoint_changes_nothing(given_up_by: str) -> None:
    for stored_after_all in (True, False):
        spill, result = _writing()
        writer = spill.writer
        abort = (
            writer.abort(ME, ID, OWN, "division by zero", cleanup=True) if given_up_by == "abort" else writer.close()
        )
        spill.execute(abort)
        error = StoreUnavailable("no answer")
        assert (writer.written(ID, stored()) if stored_after_all else writer.write_failed(ID, ASYNC, error)) == ()
        assert result.failure is not None
        assert result.failure.reason is not ASYNC
        assert len(spill.released) == 1
        if given_up_by == "abort":
            assert writer.start(ME, CheckpointId(6)) == ()


@pytest.mark.parametrize("newer_is", ["started", "aborted"])
def test_a_checkpoint_being_written_completes_independently_of_newer_ones(newer_is: str) -> None:
    spill, result = _writing()
    newer = CheckpointId(6)
    if newer_is == "started":
        spill.writer.start(ME, newer)
        spill.writer.add_input(ME, newer, CHANNEL, [data()])
        assert len(spill.writer.held) == 2
    else:
        spill.writer.abort(ME, newer, OWN, "division by zero", cleanup=True)
    spill.store()
    assert result.file == stored()
    assert len(spill.released) == 1
    with wording.raises(ProtocolViolation):
        spill.writer.written(CheckpointId(4), stored())


def test_an_older_checkpoint_can_still_be_aborted_while_it_is_written() -> None:
    spill, result = _writing()
    spill.writer.start(ME, CheckpointId(6))
    spill.execute(spill.writer.abort(ME, ID, OWN, "division by zero", cleanup=True))
    assert result.failure == CAUSE
    assert not spill.writer.take_result(ME, CheckpointId(6)).done
    spill.store()
    assert spill.writer.held == ()


def test_an_older_checkpoint_that_cannot_be_written_breaks_the_writer() -> None:
    spill, result = _writing()
    spill.writer.start(ME, CheckpointId(6))
    with wording.raises(ProtocolViolation):
        spill.writer.write_failed(CheckpointId(4), ASYNC, StoreUnavailable("no answer"))
    spill.execute(spill.writer.write_failed(ID, ASYNC, StoreUnavailable("no answer")))
    assert result.failure == ChannelStateFailure(ASYNC, "no answer")
    with pytest.raises(StoreUnavailable):
        spill.writer.finish_input(ME, CheckpointId(6))
    with pytest.raises(StoreUnavailable):
        spill.execute(spill.writer.close())
