"""Mutants of what one subtask does with barriers, snapshots and watermarks: the cut is not consistent any more."""

from __future__ import annotations

from tests.mutants.mutant import CUT, Mutant

_HANDLER = "pipeline/milepost/protocol/subtask/barrier_handler.py"
_CHANNELS = "pipeline/milepost/protocol/subtask/barrier_channels.py"
_SUBTASK = "pipeline/milepost/protocol/subtask/subtask.py"
_SNAPSHOT = "pipeline/milepost/protocol/subtask/snapshot.py"

_TEST_ALIGNED = "tests/conformance/protocol/barriers/test_aligned_barriers.py::"
_TEST_ALTERNATING = "tests/conformance/protocol/barriers/test_alternating_barriers.py::"
_TEST_UNALIGNED = "tests/conformance/protocol/barriers/test_unaligned_barriers.py::"
_TEST_SUBTASK = "tests/conformance/protocol/subtask/test_subtask_coordinator.py::"
_TEST_SNAPSHOT = "tests/conformance/protocol/subtask/test_async_snapshot.py::"
_TEST_HANDLER = "tests/unit/protocol/subtask/test_barrier_handler.py::"

_HELD_BACK = _TEST_ALIGNED + ("test_several_channels_trigger_at_the_last_barrier_and_hold_back_what_follows_the_others")

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a channel whose barrier has come is read on",
        CUT,
        _CHANNELS,
        "        self._blocked.add(channel)\n        yield BlockChannel(channel)\n",
        "        yield from ()\n",
        (_HELD_BACK,),
    ),
    Mutant(
        "the snapshot is taken before the last barrier has come",
        CUT,
        _HANDLER,
        "Condition.ALL_RECEIVED: len(self._received) == self._target,",
        "Condition.ALL_RECEIVED: True,",
        (_HELD_BACK,),
    ),
    Mutant(
        "a checkpoint that is over begins again with its late barrier",
        CUT,
        _HANDLER,
        "return checkpoint_id < self._current or (checkpoint_id == self._current and self._pending is None)",
        "return checkpoint_id < self._current",
        (
            _TEST_ALIGNED + "test_cancel_markers_among_several_channels",
            _TEST_UNALIGNED + "test_a_barrier_after_its_cancel_marker_is_ignored",
        ),
    ),
    Mutant(
        "the barrier of an older checkpoint counts for the newer one",
        CUT,
        _HANDLER,
        "return checkpoint_id < self._current or (checkpoint_id == self._current and self._pending is None)",
        "return checkpoint_id == self._current and self._pending is None",
        (
            _TEST_ALIGNED + "test_a_late_barrier_of_a_cancelled_checkpoint_is_dropped_and_its_channel_free",
            _TEST_ALTERNATING + "test_an_older_barrier_is_dropped_and_its_channel_free",
        ),
    ),
    Mutant(
        "the barrier is sent after the state is frozen",
        CUT,
        _SUBTASK,
        "            BroadcastBarrier(barrier, priority=alignment is Alignment.UNALIGNED),\n"
        "            *((FinishOutput(checkpoint_id),) if channel_state else ()),\n"
        "            FreezeState(checkpoint_id, channel_state),\n",
        "            *((FinishOutput(checkpoint_id),) if channel_state else ()),\n"
        "            FreezeState(checkpoint_id, channel_state),\n"
        "            BroadcastBarrier(barrier, priority=alignment is Alignment.UNALIGNED),\n",
        (_TEST_SUBTASK + "test_the_barrier_is_sent_before_the_state_is_frozen_and_acknowledged_after_the_upload",),
    ),
    Mutant(
        "what a barrier has overtaken is not recorded",
        CUT,
        _CHANNELS,
        "self._recording = self._open - self._blocked",
        "self._recording = set()",
        (_TEST_UNALIGNED + "test_what_arrives_on_a_channel_before_its_barrier_is_channel_state_and_goes_on",),
    ),
    Mutant(
        "a channel that was read up to its barrier is recorded as well, so that rows come twice",
        CUT,
        _CHANNELS,
        "self._recording = self._open - self._blocked",
        "self._recording = set(self._open)",
        (_TEST_HANDLER + "test_every_reachable_situation_keeps_the_rules_and_every_row_is_reached",),
    ),
    Mutant(
        "a subtask that gives a checkpoint up lets the ones after it wait",
        CUT,
        _SUBTASK,
        "            NotifyOperators(checkpoint_id, Notification.ABORTED),\n"
        "            BroadcastCancelMarker(checkpoint_id),\n",
        "            NotifyOperators(checkpoint_id, Notification.ABORTED),\n",
        (_TEST_SUBTASK + "test_an_abort_on_a_barrier_declines_once_and_passes_the_cancellation_on",),
    ),
    Mutant(
        "a barrier that comes out of order takes a snapshot",
        CUT,
        _SUBTASK,
        "        if checkpoint_id <= self._last_id:\n",
        "        if checkpoint_id == 0:\n",
        (_TEST_SUBTASK + "test_a_barrier_out_of_order_is_dropped_without_a_word",),
    ),
    Mutant(
        "a checkpoint that was aborted before its barrier came takes a snapshot",
        CUT,
        _SUBTASK,
        "        if self._forget_abort(checkpoint_id):\n            marker",
        "        if self._forget_abort(checkpoint_id) is None:\n            marker",
        (_TEST_SUBTASK + "test_a_checkpoint_aborted_before_its_barrier_takes_no_snapshot_and_says_nothing",),
    ),
    Mutant(
        "state that is acknowledged is deleted by the worker",
        CUT,
        _SNAPSHOT,
        "        if self._state is not SnapshotState.RUNNING:\n"
        "            return ()\n"
        "        self._state = SnapshotState.DISCARDED\n"
        "        return (CancelUpload",
        "        if self._state is SnapshotState.DISCARDED:\n"
        "            return ()\n"
        "        self._state = SnapshotState.DISCARDED\n"
        "        return (CancelUpload",
        (_TEST_SNAPSHOT + "test_acknowledged_state_is_never_discarded",),
    ),
    Mutant(
        "what is stored after its snapshot was discarded is acknowledged",
        CUT,
        _SNAPSHOT,
        "        if self._state is SnapshotState.DISCARDED:\n"
        "            return (DiscardSnapshot(self._checkpoint_id),)\n",
        "",
        (_TEST_SNAPSHOT + "test_what_is_stored_after_a_discard_is_dropped_and_not_acknowledged",),
    ),
    Mutant(
        "an operator goes on with the time of its fastest input",
        CUT,
        "pipeline/milepost/protocol/exchange/watermarks.py",
        "    return min(value for value in known if value is not None)\n",
        "    return max(value for value in known if value is not None)\n",
        ("tests/unit/protocol/exchange/test_watermarks.py::test_an_operator_waits_for_its_slowest_input",),
    ),
)
