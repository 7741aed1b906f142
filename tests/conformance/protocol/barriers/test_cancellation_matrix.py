"""Barriers and cancel markers of two checkpoints on one channel, in every relevant order."""

from __future__ import annotations

import pytest

from milepost.protocol.subtask.barrier_events import CheckpointBarrier
from milepost_testkit.tasks.input_gate import Cancel, InputGate, unaligned

B10, B20, C10, C20 = unaligned(10), unaligned(20), Cancel(10), Cancel(20)
Event = CheckpointBarrier | Cancel


@pytest.mark.parametrize(
    ("channels", "events", "triggered", "aborted"),
    [
        pytest.param(1, (C10, C20), [], [10, 20], id="c10 c20"),
        pytest.param(1, (C20, C10), [], [20], id="c20 c10"),
        pytest.param(1, (C10, B10), [], [10], id="c10 b10"),
        pytest.param(1, (C10, B20), [20], [10], id="c10 b20"),
        pytest.param(1, (C20, B10), [], [20], id="c20 b10"),
        pytest.param(1, (B10, B10), [10], [], id="b10 b10"),
        pytest.param(1, (B10, B20), [10, 20], [], id="b10 b20"),
        pytest.param(2, (B10, B20), [10, 20], [10], id="b10 b20, two channels"),
        pytest.param(1, (B20, B10), [20], [], id="b20 b10"),
        pytest.param(1, (B10, C10), [10], [], id="b10 c10"),
        pytest.param(2, (B10, C10), [10], [10], id="b10 c10, two channels"),
        pytest.param(1, (B10, C20), [10], [20], id="b10 c20"),
        pytest.param(1, (B20, C10), [20], [], id="b20 c10"),
    ],
)
def test_cancellation_matrix_of_triggers_and_aborts(
    channels: int, events: tuple[Event, ...], triggered: list[int], aborted: list[int]
) -> None:
    """Flink checks whether anything was triggered or aborted; here the ids are compared.

    Case: UnalignedCheckpointsCancellationTest.test
    """
    gate = InputGate(channels)
    for event in events:
        gate.deliver(0, event)
    assert gate.triggered_ids == triggered
    assert gate.aborted_ids == aborted
    assert gate.blocked == set()
    assert gate.handler.recording_channels == ({1} if gate.handler.pending else set())
