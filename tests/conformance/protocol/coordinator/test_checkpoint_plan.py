"""Participants of a checkpoint, planned for each epoch from the available input (I7).

Flink checks which tasks run and which have finished. Here every epoch starts its own subtasks: the source subtasks with
input, and all subtasks of every stateful level. A source without new input keeps its position.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.epoch.plan import SourceInput, expected_subtasks, split_inputs
from milepost.errors import SubtaskDeclined
from milepost.jobmaster import Session
from milepost.jobspec.job import FileSourceSpec
from milepost.protocol.records.checkpoints import CompletedCheckpoint, SubtaskKey
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.sources.contract import SourceObject
from milepost_testkit.jobs.job_log import EXPECTED, A, JobLog, assert_refused
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

TWO_SOURCES = {
    "operators:": """\
  others:
    format: csv
    path: ../landing/others/*.csv
    settle: 0s
    schema: {k: int64, v: string}
operators:
  - {uid: also, kind: aggregate, inputs: [others], key: [k], aggregates: {rows: count(*)}}""",
    "sinks:": "sinks:\n  - {name: second, input: also, format: parquet, path: ../lake/second, mode: upsert}",
}

SPEC = FileSourceSpec.model_validate({"format": "csv", "path": "*.csv", "schema": {"k": "int64"}})


def source(name: str, objects: int) -> SourceInput:
    planned = tuple(SourceObject(f"{name}/{index}.csv", f"v{index}", 10, index) for index in range(objects))
    return SourceInput(name, planned, (), {}, 0, 0, None)


def planned(sources: list[SourceInput], levels: int, parallelism: int) -> tuple[list[str], set[SubtaskKey]]:
    """The source of each source subtask, and all subtasks that must acknowledge."""
    splits = split_inputs({item.name: SPEC for item in sources}, sources, parallelism)
    return [item.name for item, _ in splits], set(expected_subtasks(len(splits), levels, parallelism))


def keys(level: int, count: int) -> set[SubtaskKey]:
    return {SubtaskKey(level, subtask) for subtask in range(count)}


def test_when_all_have_something_to_do_everybody_is_triggered_and_must_acknowledge() -> None:
    """Every source subtask begins, every subtask of every level is waited for.

    Case: DefaultCheckpointPlanCalculatorTest.testComputeAllRunningGraph
    """
    begins, expected = planned([source("a", 4), source("b", 4)], levels=2, parallelism=3)
    assert begins == ["a"] * 3 + ["b"] * 3
    assert expected == keys(0, 6) | keys(1, 3) | keys(2, 3)


def test_source_subtasks_without_input_are_omitted_and_no_subtask_downstream_is() -> None:
    """All-to-all: a source without input does not start; every downstream subtask still takes its snapshot.

    Case: DefaultCheckpointPlanCalculatorTest.testAllToAllEdgeWithSomeSourcesFinished
    """
    begins, expected = planned([source("a", 1)], levels=1, parallelism=3)
    assert begins == ["a"], "two of three have nothing to read"
    assert expected == keys(0, 1) | keys(1, 3)


@pytest.mark.parametrize("finished", ["a", "b", "c"])
def test_a_source_without_new_input_is_omitted(finished: str) -> None:
    """With several inputs only those with something to read begin; the operator that joins them is expected whole.

    Case: DefaultCheckpointPlanCalculatorTest.testComputeWithMultipleInputs
    """
    sources = [source(name, 0 if name == finished else 5) for name in "abc"]
    begins, expected = planned(sources, levels=1, parallelism=2)
    assert set(begins) == set("abc") - {finished}
    assert expected == keys(0, 4) | keys(1, 2)


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_every_level_is_expected_whole_however_few_sources_begin(levels: int) -> None:
    """A level has no running predecessors of its own to wait for: barriers come from the level before it.

    Case: DefaultCheckpointPlanCalculatorTest.testComputeWithMultipleLevels
    """
    _, expected = planned([source("a", 2), source("b", 0)], levels=levels, parallelism=4)
    assert expected == keys(0, 2).union(*(keys(level, 4) for level in range(1, levels + 1)))


def test_when_no_source_has_anything_one_subtask_sends_the_barrier() -> None:
    """An epoch that reads nothing still ends in a checkpoint of everything."""
    begins, expected = planned([source("a", 0), source("b", 0)], levels=1, parallelism=3)
    assert begins == ["a"]
    assert expected == keys(0, 1) | keys(1, 3)


def test_an_epoch_with_a_subtask_that_did_not_run_cannot_complete() -> None:
    """Subtasks start after the trigger, so a subtask that did not run is only noticed at the end, as unacknowledged.

    Case: DefaultCheckpointPlanCalculatorTest.testPlanCalculationWhenOneTaskNotRunning
    """
    log = JobLog()
    log.trigger(A)
    error = assert_refused(log, SubtaskDeclined, lambda: log.complete(A, acknowledged=EXPECTED[:-1]))
    assert error.details["reason"] == CheckpointFailureReason.ACKNOWLEDGEMENT_MISSING.value


def test_a_source_that_has_nothing_new_is_in_the_checkpoint_as_it_was(tmp_path: Path) -> None:
    """Its position and the state below it are carried by reference; everybody's answer is there.

    Case: DefaultCheckpointPlanTest.testFulfillFinishedStates
    """
    job = SparklessJob.create(tmp_path, TWO_SOURCES | {"{last: 1}": "{last: 9}"})
    (job.folder / "landing" / "others").mkdir()
    job.land("a.csv")
    job.land("others/a.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    job.land("b.csv")
    runner = SparklessRunner()
    job.master.epochs.run(Session.cli(), runner)
    first, second = (job.context.metadata(one) for one in _retained(job))
    assert [item.name for item in runner.plans[0].inputs if item.objects] == ["rows"]
    assert second.sources["others"].consumed == first.sources["others"].consumed
    assert (second.sources["others"].rows, second.sources["others"].objects) == (0, 0)
    carried = [[run.key for run in handle.runs] for handle in second.operators["also"].handles]
    assert carried == [[run.key for run in handle.runs] for handle in first.operators["also"].handles]
    assert any(carried)
    assert len(second.sources["rows"].consumed) == 2
    assert job.master.reports.fsck().missing == ()


def _retained(job: SparklessJob) -> list[CompletedCheckpoint]:
    return list(job.context.head().state.checkpoints)
