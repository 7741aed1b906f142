"""A table against a plain model: any history of epochs, switches, crashes and late commits, for each kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis.stateful import run_state_machine_as_test

from milepost.sinks.contract import SinkMode
from milepost.sinks.staging import compaction, small_files
from milepost_testkit import profiles
from tests.conformance.sinks.contract.sink_machine import SinkMachine
from tests.conformance.sinks.formats.local_cases import LocalListed, LocalParquet


class UpsertCase(LocalParquet):
    mode = SinkMode.UPSERT


class BucketsCase(LocalListed):
    """Files of key groups, which the spec knows of these formats."""

    mode = SinkMode.UPSERT
    format_name = "delta"


class AppendMachine(SinkMachine):
    case = LocalParquet()


class UpsertMachine(SinkMachine):
    case = UpsertCase()


class ListedMachine(SinkMachine):
    case = LocalListed()


class BucketsMachine(SinkMachine):
    case = BucketsCase()


@pytest.mark.long
@pytest.mark.hypothesis
@pytest.mark.parametrize("machine", [AppendMachine, UpsertMachine, ListedMachine, BucketsMachine])
def test_any_history_of_epochs_switches_crashes_and_late_commits_equals_the_model(
    machine: type[SinkMachine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I14. Compaction from 4 files on, small files joined 2 by 2, so that short histories meet both."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", 4)
    monkeypatch.setattr(small_files, "GROWTH", 2)
    assert machine.case.open_sink(tmp_path).by_buckets is (machine is BucketsMachine)
    share = 0.12 if machine is BucketsMachine else 0.4  # each epoch writes the buckets of two subtasks
    run_state_machine_as_test(machine, settings=profiles.examples(share))
