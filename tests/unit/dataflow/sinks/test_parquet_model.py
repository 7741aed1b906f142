"""The Parquet sink beside a plain model: any history of epochs, switches of the timeline, crashes and late commits."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from milepost.dataflow.sinks import parquet, sink_chain
from milepost.dataflow.sinks.contract import SinkMode
from tests.harness.stores.sink_machine import SinkMachine


class AppendMachine(SinkMachine):
    mode = SinkMode.APPEND


class UpsertMachine(SinkMachine):
    mode = SinkMode.UPSERT


@pytest.mark.parametrize("machine", [AppendMachine, UpsertMachine])
def test_any_history_of_epochs_switches_crashes_and_late_commits_equals_the_model(
    machine: type[SinkMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """I14. Snapshots every 3 heads and compaction from 4 files on, so that short histories meet both."""
    monkeypatch.setattr(sink_chain, "SNAPSHOT_EVERY", 3)
    monkeypatch.setattr(parquet, "COMPACT_FILES", 4)
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=25, deadline=None))
