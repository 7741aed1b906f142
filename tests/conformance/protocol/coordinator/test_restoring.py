"""The next epoch restores the newest completed checkpoint, with another parallelism or a changed job graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

NEW_OPERATOR = "  - {uid: values, kind: aggregate, inputs: [rows], key: [v], aggregates: {rows: count(*)}}\nsinks:\n"
KEYS = range(40)


def rows(keys: range, value: str) -> str:
    return "k,v\n" + "".join(f"{key},{value}\n" for key in keys)


def edit(job: SparklessJob, *changes: tuple[str, str]) -> None:
    path = job.folder / "config" / "small.yaml"
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def run(job: SparklessJob) -> SparklessRunner:
    runner = SparklessRunner()
    job.master.epochs.run(Session.cli(), runner)
    return runner


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    """A job whose two subtasks have counted forty keys once; a second epoch's rows for half of them have landed."""
    job = SparklessJob.create(tmp_path, {"checkpointing:": "spark: {parallelism: 2}\ncheckpointing:"})
    job.land("a.csv", rows(KEYS, "x"))
    run(job)
    job.land("b.csv", rows(KEYS[:20], "y"))
    return job


def assert_counted(job: SparklessJob) -> None:
    """Every key has its count of both epochs, in state and in the table: each was restored by exactly one subtask."""
    expected = [(key, 2 if key < 20 else 1) for key in KEYS]
    assert sorted((row["k"], row["count(*)"]) for row in job.master.reports.state("latest").to_pylist()) == expected
    assert sorted((row["k"], row["rows"]) for row in job.master.reports.read("table").to_pylist()) == expected


@pytest.mark.long
@pytest.mark.parametrize("parallelism", [2, 3, 1])
def test_state_is_restored_whatever_the_parallelism(job: SparklessJob, parallelism: int) -> None:
    """The same, more, or fewer subtasks than wrote it; only key groups move.

    Case: CheckpointCoordinatorRestoringTest.testRestoreLatestCheckpointedState
    Case: CheckpointCoordinatorRestoringTest.testRestoreLatestCheckpointedStateScaleOut
    Case: CheckpointCoordinatorRestoringTest.testRestoreLatestCheckpointedStateScaleIn
    """
    edit(job, ("parallelism: 2", f"parallelism: {parallelism}"))
    (plan,) = run(job).plans
    assert (plan.base, len(plan.states["latest"][""].handles)) == (1, 2)
    assert len([one for one in job.master.reports.show(2).acknowledged if one.level == 1]) == parallelism
    assert_counted(job)


def test_another_max_parallelism_is_refused(job: SparklessJob) -> None:
    """It decides the key group of every key that is in state.

    Case: CheckpointCoordinatorRestoringTest.testRestoreLatestCheckpointFailureWhenMaxParallelismChanges
    """
    before = job.context.head()
    edit(job, ("timeout: 10m", "timeout: 10m, max_parallelism: 64"))
    with wording.raises(InvalidRequest):
        run(job)
    assert job.context.head() == before


@pytest.mark.long
@pytest.mark.parametrize("parallelism", [2, 3, 1])
def test_state_is_restored_by_uid_when_operators_come_and_go(job: SparklessJob, parallelism: int) -> None:
    """A new operator starts empty next to the restored one; a removed one needs consent; others keep their state.

    Case: CheckpointCoordinatorRestoringTest.testStateRecoveryWhenTopologyChange
    Case: CheckpointCoordinatorRestoringTest.testStateRecoveryWhenTopologyChangeOut
    Case: CheckpointCoordinatorRestoringTest.testStateRecoveryWhenTopologyChangeIn
    """
    edit(job, ("sinks:\n", NEW_OPERATOR), ("parallelism: 2", f"parallelism: {parallelism}"))
    run(job)
    assert_counted(job)
    assert job.master.reports.state("values").to_pylist() == [{"v": "y", "count(*)": 20}]
    job.land("c.csv", rows(range(0), "z"))
    edit(job, (NEW_OPERATOR, "sinks:\n"))
    with wording.raises(InvalidRequest):
        run(job)
    job.master.epochs.run(Session.cli(), SparklessRunner(), allow_non_restored_state=True)
    assert_counted(job)


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("key: [k], aggregates", "key: [v], aggregates"),
        ("aggregates: {rows: count(*)}", "aggregates: {rows: count(*), most: max(k)}"),
    ],
)
def test_a_changed_operator_is_refused_before_anything_is_planned(job: SparklessJob, old: str, new: str) -> None:
    """The first epoch of the changed job restores what the old one left: it must fit, operator by operator.

    Case: CheckpointCoordinatorRestoringTest.testJobGraphModificationsAreCheckedForInitialCheckpoint
    """
    before = job.context.head()
    edit(job, (old, new))
    with wording.raises(InvalidRequest):
        run(job)
    assert job.context.head() == before
    edit(job, (new, old))
    run(job)
    assert_counted(job)


def test_a_changed_operator_is_refused_when_a_job_starts_from_a_savepoint(job: SparklessJob) -> None:
    """What a savepoint holds must fit the spec as what a head holds must; nothing is written before that is known.

    Case: CheckpointCoordinatorRestoringTest.testJobGraphModificationsAreCheckedForSavepoint
    """
    job.master.savepoints.create("before")
    job.master.savepoints.cancel()
    before = job.context.head()
    edit(job, ("key: [k], aggregates", "key: [v], aggregates"))
    with wording.raises(InvalidRequest):
        job.master.restores.start("before")
    assert job.context.head() == before
    edit(job, ("key: [v], aggregates", "key: [k], aggregates"))
    job.master.restores.start("before")
    run(job)
    assert_counted(job)
