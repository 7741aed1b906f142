"""Channel-state writer, its order of ids and its shared file: the rules of Flink's ChannelStateWriter."""

from __future__ import annotations

import pytest

from milepost.errors import ProtocolViolation, StoreUnavailable
from milepost.protocol.exchange.barrier import EventKind
from milepost.protocol.exchange.channel_file import (
    ChannelStateFailure,
    ChannelStateFile,
    ChannelStateResult,
    FileState,
    InFlightBuffer,
    InputChannel,
    WriteFile,
)
from milepost.protocol.exchange.channel_state import (
    MAX_LIVE_RESULTS,
    MAX_SUBTASKS_PER_FILE,
    ChannelStateWriter,
    share_files,
)
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit import wording
from milepost_testkit.tasks.subtask_driver import CHANNEL, SpillFile, data, stored

ID, ME = CheckpointId(42), "join/0"
ASYNC = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
SUBSUMED = CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED
SHARED = CheckpointFailureReason.CHANNEL_STATE_SHARED_STREAM_EXCEPTION
CLOSING = CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING
OWN = CheckpointFailureReason.OPERATOR_ERROR
OWN_CAUSE = ChannelStateFailure(OWN, "division by zero")
SUBTASK_COUNTS = pytest.mark.parametrize("subtasks", [1, 2, 3, MAX_SUBTASKS_PER_FILE])
TWO_OR_MORE = pytest.mark.parametrize("subtasks", [2, 3, MAX_SUBTASKS_PER_FILE])


def _writer(*subtasks: str) -> ChannelStateWriter:
    writer = ChannelStateWriter()
    for subtask in subtasks or (ME,):
        writer.register(subtask)
    return writer


def _names(count: int) -> list[str]:
    return [f"operator-{index}/0" for index in range(count)]


def _reason(result: ChannelStateResult) -> CheckpointFailureReason:
    assert result.done
    assert result.failure is not None
    return result.failure.reason


def _finish(spill: SpillFile, subtask: str = ME, checkpoint_id: CheckpointId = ID) -> None:
    spill.execute(spill.writer.finish_input(subtask, checkpoint_id))
    spill.execute(spill.writer.finish_output(subtask, checkpoint_id))


def _files(*subtasks: str) -> tuple[ChannelStateFile, dict[str, ChannelStateResult]]:
    file = ChannelStateFile(ID, subtasks)
    results = {subtask: ChannelStateResult() for subtask in subtasks}
    for subtask, result in results.items():
        file.register(subtask, result)
    return file, results


# ChannelStateWriterImpl: what a subtask may ask for, and when.


def test_an_event_among_in_flight_data_is_refused_with_the_whole_call() -> None:
    """Case: ChannelStateWriterImplTest.testAddEventBuffer"""
    writer = _writer()
    writer.start(ME, ID)
    event = InFlightBuffer(EventKind.BARRIER, 10, None)
    with wording.raises(ProtocolViolation):
        writer.add_input(ME, ID, CHANNEL, [event, data()])
    assert writer.held == ()


def test_a_result_is_pending_when_it_is_taken_and_ends_with_the_writer() -> None:
    """Case: ChannelStateWriterImplTest.testResultCompletion"""
    writer = _writer()
    writer.start(ME, ID)
    result = writer.take_result(ME, ID)
    assert not result.done
    writer.close()
    assert _reason(result) is CLOSING


def test_an_abort_ends_the_result_and_releases_the_buffers() -> None:
    """Case: ChannelStateWriterImplTest.testAbort"""
    spill, buffer = SpillFile(_writer()), data()
    spill.writer.start(ME, ID)
    result = spill.writer.take_result(ME, ID)
    spill.writer.add_input(ME, ID, CHANNEL, [buffer])
    spill.execute(spill.writer.abort(ME, ID, OWN, "division by zero", cleanup=False))
    assert result.failure == OWN_CAUSE
    assert spill.released == [buffer]
    assert spill.writer.held == ()


def test_an_abort_with_cleanup_removes_the_result() -> None:
    """Case: ChannelStateWriterImplTest.testAbortClearsResults"""
    writer = _writer()
    writer.start(ME, ID)
    writer.abort(ME, ID, OWN, "division by zero", cleanup=True)
    with wording.raises(ProtocolViolation):
        writer.take_result(ME, ID)


def test_an_abort_without_cleanup_keeps_the_result_available() -> None:
    """Case: ChannelStateWriterImplTest.testAbortDoesNotClearsResults"""
    writer = _writer()
    writer.start(ME, ID)
    writer.abort(ME, ID, OWN, "division by zero", cleanup=False)
    assert _reason(writer.take_result(ME, ID)) is OWN
    with wording.raises(ProtocolViolation):
        writer.take_result(ME, ID)


def test_an_abort_of_a_checkpoint_that_was_not_started_is_ignored() -> None:
    """Case: ChannelStateWriterImplTest.testAbortIgnoresMissing"""
    writer = _writer()
    assert writer.abort(ME, ID, OWN, "division by zero", cleanup=True) == ()
    writer.start(ME, CheckpointId(43))
    assert not writer.take_result(ME, CheckpointId(43)).done


def test_an_old_checkpoint_is_aborted_and_the_next_one_completes() -> None:
    """Case: ChannelStateWriterImplTest.testAbortOldAndStartNewCheckpoint"""
    spill, old, new = SpillFile(_writer()), ID, CheckpointId(43)
    spill.writer.start(ME, old)
    spill.writer.abort(ME, old, OWN, "division by zero", cleanup=False)
    spill.writer.start(ME, new)
    kept = data()
    spill.writer.add_input(ME, new, CHANNEL, [kept])
    late = data()
    spill.execute(spill.writer.add_input(ME, old, CHANNEL, [late]))
    _finish(spill, checkpoint_id=new)
    spill.store()
    assert _reason(spill.writer.take_result(ME, old)) is OWN
    assert spill.writer.take_result(ME, new).buffers == {CHANNEL: 1}
    assert spill.released == [late, kept]


def test_buffers_are_released_when_the_file_cannot_be_written() -> None:
    """Case: ChannelStateWriterImplTest.testBuffersRecycledOnError"""
    spill, buffer = SpillFile(_writer()), data()
    spill.writer.start(ME, ID)
    spill.writer.add_input(ME, ID, CHANNEL, [buffer])
    _finish(spill)
    error = StoreUnavailable("the store did not answer")
    spill.execute(spill.writer.write_failed(ID, ASYNC, error))
    assert spill.released == [buffer]
    with pytest.raises(StoreUnavailable):
        spill.writer.add_input(ME, ID, CHANNEL, [data()])
    assert spill.writer.held == ()


def test_buffers_are_released_when_the_writer_is_closed() -> None:
    """Case: ChannelStateWriterImplTest.testBuffersRecycledOnClose
    Case: ChannelStateWriteRequestExecutorImplTest.testCleanup
    """
    spill, buffer = SpillFile(_writer()), data()
    spill.writer.start(ME, ID)
    spill.execute(spill.writer.add_input(ME, ID, CHANNEL, [buffer]))
    assert spill.released == []
    spill.execute(spill.writer.close())
    assert spill.released == [buffer]
    assert spill.writer.held == ()
    assert spill.writer.close() == ()


def test_nothing_can_be_added_after_the_end() -> None:
    """Case: ChannelStateWriterImplTest.testNoAddDataAfterFinished"""
    spill = SpillFile(_writer(ME, "window/0"))
    spill.writer.start(ME, ID)
    spill.writer.finish_input(ME, ID)
    with wording.raises(ProtocolViolation):
        spill.writer.add_input(ME, ID, CHANNEL, [data()])
    spill.writer.finish_output(ME, ID)
    spill.writer.start("window/0", ID)
    _finish(spill, "window/0")
    with wording.raises(ProtocolViolation):
        spill.writer.add_input(ME, ID, CHANNEL, [data()])


def test_nothing_can_be_added_before_the_start() -> None:
    """Case: ChannelStateWriterImplTest.testAddDataNotStarted"""
    writer = _writer()
    with wording.raises(ProtocolViolation):
        writer.add_input(ME, ID, CHANNEL, [data()])
    writer.start(ME, ID)
    with wording.raises(ProtocolViolation):
        writer.add_input(ME, CheckpointId(43), CHANNEL, [data()])
    assert writer.held == ()


def test_a_checkpoint_that_was_not_started_cannot_be_finished() -> None:
    """Case: ChannelStateWriterImplTest.testFinishNotStarted"""
    writer = _writer(ME, "window/0")
    with wording.raises(ProtocolViolation):
        writer.finish_input(ME, ID)
    with wording.raises(ProtocolViolation):
        writer.finish_output(ME, ID)
    writer.start("window/0", ID)
    with wording.raises(ProtocolViolation):
        writer.finish_input(ME, ID)


def test_an_unreported_failure_is_raised_at_the_close() -> None:
    """Case: ChannelStateWriterImplTest.testRethrowOnClose
    Case: ChannelStateWriteRequestExecutorImplTest.testRecordsException
    """
    spill = _failed_write()
    error = spill.writer
    with wording.raises(StoreUnavailable):
        spill.execute(error.close())
    assert spill.writer.close() == ()


def test_a_failure_reported_by_its_result_is_not_raised_at_the_close() -> None:
    """A refused snapshot is a value: the subtask declines with the result's failure, it does not break."""
    spill = _failed_write()
    assert _reason(spill.writer.take_result(ME, ID)) is ASYNC
    assert spill.writer.close() == ()


def test_a_failure_is_raised_at_every_later_call() -> None:
    """Case: ChannelStateWriterImplTest.testRethrowOnNextCall"""
    spill = _failed_write()
    for call in (
        lambda: spill.writer.start(ME, CheckpointId(43)),
        lambda: spill.writer.finish_input(ME, ID),
        lambda: spill.writer.finish_output(ME, ID),
        lambda: spill.writer.register("window/0"),
    ):
        with wording.raises(StoreUnavailable):
            call()


def _failed_write() -> SpillFile:
    spill = SpillFile(_writer())
    spill.writer.start(ME, ID)
    spill.writer.add_input(ME, ID, CHANNEL, [data()])
    _finish(spill)
    spill.execute(spill.writer.write_failed(ID, ASYNC, StoreUnavailable("the store did not answer")))
    return spill


def test_the_number_of_untaken_results_is_limited() -> None:
    """Case: ChannelStateWriterImplTest.testLimit"""
    writer = _writer(ME, "window/0")
    for checkpoint_id in range(1, MAX_LIVE_RESULTS + 1):
        writer.start(ME, CheckpointId(checkpoint_id))
    with wording.raises(ProtocolViolation) as refused:
        writer.start(ME, CheckpointId(MAX_LIVE_RESULTS + 1))
    assert str(MAX_LIVE_RESULTS) in str(refused.value)
    writer.start("window/0", CheckpointId(MAX_LIVE_RESULTS))
    writer.take_result(ME, CheckpointId(1))
    writer.start(ME, CheckpointId(MAX_LIVE_RESULTS + 1))


def test_nothing_starts_after_the_close() -> None:
    """Case: ChannelStateWriterImplTest.testNoStartAfterClose"""
    writer = _writer()
    writer.close()
    with wording.raises(ProtocolViolation):
        writer.start(ME, ID)


def test_nothing_is_added_after_the_close() -> None:
    """Case: ChannelStateWriterImplTest.testNoAddDataAfterClose"""
    writer = _writer()
    writer.start(ME, ID)
    writer.close()
    with wording.raises(ProtocolViolation):
        writer.add_input(ME, ID, CHANNEL, [data()])
    assert writer.held == ()


def test_a_checkpoint_starts_once_per_subtask() -> None:
    writer = _writer()
    writer.start(ME, ID)
    with wording.raises(ProtocolViolation):
        writer.start(ME, ID)
    writer.take_result(ME, ID)
    with wording.raises(ProtocolViolation):
        writer.start(ME, ID)


# ChannelStateWriteRequestDispatcherImpl: ids move forward, an abort fails everybody in the file.


def test_input_that_comes_after_the_checkpoint_failed_is_released() -> None:
    """Case: ChannelStateWriteRequestDispatcherImplTest.testPartialInputChannelStateWrite"""
    spill = SpillFile(_writer(ME, "window/0"))
    spill.writer.start(ME, ID)
    spill.writer.start("window/0", ID)
    spill.execute(spill.writer.abort("window/0", ID, OWN, "division by zero", cleanup=False))
    late = [data(), data()]
    spill.execute(spill.writer.add_input(ME, ID, CHANNEL, late))
    assert spill.released == late
    assert spill.writer.finish_input(ME, ID) == ()
    assert spill.writer.finish_output(ME, ID) == ()


@pytest.mark.parametrize(
    "starter",
    [
        pytest.param(ME, id="same subtask"),
        pytest.param("window/0", id="different subtask"),
    ],
)
def test_a_newer_checkpoint_fails_an_older_unfinished_one(starter: str) -> None:
    """Case: ChannelStateWriteRequestDispatcherImplTest.testStartNewCheckpointForSameSubtask
    Case: ChannelStateWriteRequestDispatcherImplTest.testStartNewCheckpointForDifferentSubtask
    Case: ChannelStateWriteRequestDispatcherImplTest.testStartNewCheckpointAndCheckOldCheckpointResult
    """
    spill, buffer = SpillFile(_writer(ME, "window/0")), data()
    spill.writer.start(ME, CheckpointId(1))
    spill.writer.add_input(ME, CheckpointId(1), CHANNEL, [buffer])
    result = spill.writer.take_result(ME, CheckpointId(1))
    assert not result.done
    spill.execute(spill.writer.start(starter, CheckpointId(2)))
    assert _reason(result) is SUBSUMED
    assert spill.released == [buffer]
    assert not spill.writer.take_result(starter, CheckpointId(2)).done


def test_a_newer_checkpoint_leaves_an_older_whole_one_alone() -> None:
    spill = SpillFile(_writer())
    spill.writer.start(ME, CheckpointId(1))
    spill.writer.add_input(ME, CheckpointId(1), CHANNEL, [data()])
    _finish(spill, checkpoint_id=CheckpointId(1))
    spill.store()
    assert spill.writer.start(ME, CheckpointId(2)) == ()
    assert spill.writer.take_result(ME, CheckpointId(1)).failure is None


@pytest.mark.parametrize(
    "starter",
    [
        pytest.param(ME, id="same subtask"),
        pytest.param("window/0", id="different subtask"),
    ],
)
def test_an_id_below_an_aborted_one_cannot_start(starter: str) -> None:
    """Case: ChannelStateWriteRequestDispatcherImplTest.testStartOldCheckpointForSameSubtask
    Case: ChannelStateWriteRequestDispatcherImplTest.testStartOldCheckpointForDifferentSubtask
    Case: ChannelStateWriteRequestDispatcherImplTest.testStartOldCheckpointAfterNewCheckpointAborted
    """
    writer = _writer(ME, "window/0")
    writer.abort(ME, CheckpointId(2), OWN, "division by zero", cleanup=False)
    writer.start(starter, CheckpointId(1))
    assert _reason(writer.take_result(starter, CheckpointId(1))) is SUBSUMED


def test_an_id_below_the_newest_started_cannot_start() -> None:
    writer = _writer(ME, "window/0")
    writer.start(ME, CheckpointId(2))
    writer.start("window/0", CheckpointId(1))
    assert _reason(writer.take_result("window/0", CheckpointId(1))) is SUBSUMED


@SUBTASK_COUNTS
@pytest.mark.parametrize("started", [True, False], ids=["while it runs", "before it starts"])
def test_an_abort_gives_its_cause_to_its_subtask_and_a_shared_failure_to_the_others(
    subtasks: int, started: bool
) -> None:
    """Case: ChannelStateWriteRequestDispatcherImplTest.testAbortCheckpointAndCheckAllException"""
    for aborting in _names(subtasks):
        writer = _writer(*_names(subtasks))
        if not started:
            writer.abort(aborting, ID, OWN, "division by zero", cleanup=False)
        for subtask in _names(subtasks):
            writer.start(subtask, ID)
        if started:
            writer.abort(aborting, ID, OWN, "division by zero", cleanup=False)
        results = {subtask: writer.take_result(subtask, ID) for subtask in _names(subtasks)}
        assert results.pop(aborting).failure == OWN_CAUSE
        assert [_reason(result) for result in results.values()] == [SHARED] * (subtasks - 1)


def test_an_abort_of_a_newer_checkpoint_fails_an_older_unfinished_one() -> None:
    writer = _writer()
    writer.start(ME, CheckpointId(1))
    writer.abort(ME, CheckpointId(2), OWN, "division by zero", cleanup=False)
    assert _reason(writer.take_result(ME, CheckpointId(1))) is SUBSUMED


# ChannelStateWriteRequestExecutorImpl: who shares a file, and until when.


def test_a_writer_that_did_nothing_can_be_closed() -> None:
    """Case: ChannelStateWriteRequestExecutorImplTest.testCanBeClosed"""
    writer = _writer()
    assert writer.close() == ()
    assert writer.abort(ME, ID, OWN, "late", cleanup=True) == ()


def test_a_subtask_that_is_not_registered_can_ask_for_nothing() -> None:
    """Case: ChannelStateWriteRequestExecutorImplTest.testSubmitRequestOfUnregisteredSubtask"""
    writer = _writer()
    with wording.raises(ProtocolViolation):
        writer.start("window/0", ID)
    writer.start(ME, ID)
    with wording.raises(ProtocolViolation):
        writer.add_input("window/0", ID, CHANNEL, [data()])
    assert writer.held == ()


def test_registration_is_over_when_the_file_is_full() -> None:
    """Case: ChannelStateWriteRequestExecutorImplTest.testRegisterSubtaskAfterRegisterCompleted"""
    writer = _writer(*_names(MAX_SUBTASKS_PER_FILE - 1))
    assert writer.registering
    writer.register("last/0")
    assert not writer.registering
    with wording.raises(ProtocolViolation):
        writer.register("one-more/0")


def test_a_subtask_registers_once() -> None:
    writer = _writer()
    with wording.raises(ProtocolViolation):
        writer.register(ME)


def test_the_first_checkpoint_ends_the_registration() -> None:
    """Case: ChannelStateWriteRequestExecutorImplTest.testSubmitStartRequestBeforeRegisterCompleted"""
    writer = _writer()
    assert writer.registering
    writer.start(ME, ID)
    assert not writer.registering
    with wording.raises(ProtocolViolation):
        writer.register("window/0")


def test_the_subtasks_of_a_task_share_as_few_files_as_the_limit_allows() -> None:
    names = _names(2 * MAX_SUBTASKS_PER_FILE + 1)
    writers = share_files(names)
    assert list(writers) == names
    shares = [sum(1 for other in writers.values() if other is writer) for writer in dict.fromkeys(writers.values())]
    assert shares == [MAX_SUBTASKS_PER_FILE, MAX_SUBTASKS_PER_FILE, 1]


# ChannelStateCheckpointWriter: the file itself.


@SUBTASK_COUNTS
def test_no_result_ends_before_the_last_subtask_has_finished_both_sides(subtasks: int) -> None:
    """Case: ChannelStateCheckpointWriterTest.testResultCompletion"""
    file, results = _files(*_names(subtasks))
    for subtask in _names(subtasks):
        assert not any(result.done for result in results.values())
        file.finish_input(subtask)
        assert not any(result.done for result in results.values())
        file.finish_output(subtask)
    assert all(result.done and result.failure is None for result in results.values())


def test_without_data_there_is_no_file() -> None:
    """Case: ChannelStateCheckpointWriterTest.testEmptyState"""
    file, results = _files(ME)
    assert file.finish_output(ME) == ()
    assert file.finish_input(ME) == ()
    assert file.state is FileState.EMPTY
    assert results[ME].done
    assert results[ME].file is None


def test_no_result_ends_before_its_bytes_are_stored() -> None:
    """Case: ChannelStateCheckpointWriterTest.testFlush"""
    file, results = _files(ME)
    buffers = [data(1, "a"), data(2, "b")]
    file.add_input(ME, CHANNEL, buffers)
    file.finish_output(ME)
    (command,) = file.finish_input(ME)
    assert isinstance(command, WriteFile)
    assert [entry.buffer for entry in command.entries] == buffers
    assert not results[ME].done
    file.written(stored())
    assert results[ME].file == stored()


def test_buffers_are_released_once_they_are_stored() -> None:
    """Case: ChannelStateCheckpointWriterTest.testRecyclingBuffers"""
    spill, buffer = SpillFile(_writer()), data()
    spill.writer.start(ME, ID)
    spill.writer.add_input(ME, ID, CHANNEL, [buffer])
    _finish(spill)
    assert spill.released == []
    spill.store()
    assert spill.released == [buffer]
    assert spill.writer.held == ()


def test_a_result_knows_what_each_channel_has_in_the_file() -> None:
    """Case: ChannelStateCheckpointWriterTest.testRecordingOffsets"""
    file, results = _files(ME)
    counts = {InputChannel("orders", 0): 1, InputChannel("orders", 1): 2, InputChannel("users", 0): 5}
    for channel, count in counts.items():
        for _ in range(count):
            file.add_input(ME, channel, [data(100)])
    file.finish_input(ME)
    file.finish_output(ME)
    assert results[ME].buffers == {}
    file.written(stored())
    assert results[ME].buffers == counts


def test_the_size_of_a_result_is_that_of_its_own_buffers_not_of_the_file() -> None:
    """Case: ChannelStateCheckpointWriterTest.testFileHandleSize"""
    file, results = _files(ME, "window/0", "idle/0")
    for _ in range(3):
        file.add_input(ME, CHANNEL, [data(100)])
        file.add_input("window/0", CHANNEL, [data(10), data(10)])
    for subtask in results:
        file.finish_input(subtask)
        file.finish_output(subtask)
    file.written(stored(size=4_000))
    assert {subtask: result.size_bytes for subtask, result in results.items()} == {
        ME: 300,
        "window/0": 60,
        "idle/0": 0,
    }
    assert results["idle/0"].file is None
    assert results[ME].file == results["window/0"].file == stored(size=4_000)


def test_the_file_does_not_depend_on_which_subtask_was_first() -> None:
    """I12: what is stored is a function of the input."""
    written = []
    for order in (("a/0", "b/0"), ("b/0", "a/0")):
        file, _ = _files(*order)
        for subtask in order:
            file.add_input(subtask, CHANNEL, [data(1, f"{subtask} first"), data(1, f"{subtask} second")])
            file.finish_input(subtask)
        (*_, written_last) = [command for subtask in order for command in file.finish_output(subtask)]
        written.append(written_last)
    assert written[0] == written[1]


@TWO_OR_MORE
def test_calls_of_other_subtasks_after_a_failure_change_nothing(subtasks: int) -> None:
    """Case: ChannelStateCheckpointWriterTest.testTaskFailThenCompleteOtherTask"""
    names = _names(subtasks)
    file, results = _files(*names)
    file.fail(OWN_CAUSE, names[0])
    for subtask in names:
        assert file.finish_input(subtask) == ()
        assert file.finish_output(subtask) == ()
    assert file.state is FileState.FAILED
    assert results[names[0]].failure == OWN_CAUSE
    assert {_reason(results[subtask]) for subtask in names[1:]} == {SHARED}


def test_a_file_that_could_not_be_stored_fails_every_subtask_with_that_cause() -> None:
    """Case: ChannelStateCheckpointWriterTest.testCloseGetHandleThrowException"""
    names = _names(5)
    spill = SpillFile(_writer(*names))
    for subtask in names:
        spill.writer.start(subtask, ID)
        spill.writer.add_input(subtask, ID, CHANNEL, [data()])
    results = [spill.writer.take_result(subtask, ID) for subtask in names]
    for subtask in names:
        assert not any(result.done for result in results)
        _finish(spill, subtask)
    spill.execute(spill.writer.write_failed(ID, ASYNC, StoreUnavailable("the store did not answer")))
    assert [result.failure for result in results] == [ChannelStateFailure(ASYNC, "the store did not answer")] * 5


def test_no_subtask_joins_a_file_that_has_ended() -> None:
    """Case: ChannelStateCheckpointWriterTest.testRegisterSubtaskAfterWriterDone"""
    file = ChannelStateFile(ID, [ME, "window/0"])
    file.fail(OWN_CAUSE)
    for subtask in (ME, "window/0"):
        with wording.raises(ProtocolViolation):
            file.register(subtask, ChannelStateResult())


def test_a_file_written_too_late_is_nobodys() -> None:
    """The object is below the token's prefix: garbage of the abort (I8)."""
    spill = SpillFile(_writer())
    spill.writer.start(ME, ID)
    spill.writer.add_input(ME, ID, CHANNEL, [data()])
    _finish(spill)
    spill.execute(spill.writer.abort(ME, ID, OWN, "division by zero", cleanup=False))
    spill.store()
    assert spill.writer.take_result(ME, ID).failure == OWN_CAUSE
