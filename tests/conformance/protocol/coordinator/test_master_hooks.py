"""State that sources, sinks and the gate contribute to a checkpoint at the master, and restore from it.

The original systems let code outside the dataflow hook into a checkpoint. Here a source contributes its position and a
sink the contents of its table. Both are named by the spec, called for every checkpoint, and stored in its `_metadata`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from milepost.epoch.metadata import decode_metadata
from milepost.epoch.plan import EpochPlan
from milepost.errors import InvalidRequest, StateCorrupt, StoreUnavailable, SubtaskDeclined
from milepost.jobmaster import CheckpointReport, NothingToDo, Session
from milepost.protocol.exchange.acknowledgements import Acknowledgement, SubtaskAnswer
from milepost.tables.records.table_heads import HEADS
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.faulty_store import Effect, Fault
from milepost_testkit.stores.job_stores import break_store

SINK = "sinks:\n"
SECOND_SINK = "sinks:\n  - {name: table, input: latest, format: parquet, path: ../lake/other, mode: upsert}\n"
SECOND_SOURCE = {
    "operators:\n": "  other: {format: csv, path: ../other/*.csv, settle: 0s, schema: {k: int64}}\noperators:\n"
    "  - {uid: others, kind: aggregate, inputs: [other], key: [k], aggregates: {rows: count(*)}}\n"
}


def run(job: SparklessJob, runner: SparklessRunner | None = None) -> CheckpointReport | NothingToDo:
    return job.master.epochs.run(Session.cli(), runner or SparklessRunner())


def job_with_input(folder: Path) -> SparklessJob:
    job = SparklessJob.create(folder)
    job.land("a.csv")
    return job


def edit(job: SparklessJob, old: str, new: str) -> None:
    path = job.folder / "config" / "small.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [("  rows:\n", '  "":\n'), ("  rows:\n", "  null:\n"), ("name: table", 'name: ""'), ("name: table", "name: null")],
)
def test_a_participant_without_a_name_is_refused(tmp_path: Path, old: str, new: str) -> None:
    """Case: CheckpointCoordinatorMasterHooksTest.testNullOrInvalidId"""
    job = SparklessJob.create(tmp_path, {old: new})
    with pytest.raises(InvalidRequest):
        job.loaded()


def test_two_participants_of_one_name_are_refused(tmp_path: Path) -> None:
    """Case: CheckpointCoordinatorMasterHooksTest.testDeduplicateOnRegister"""
    job = SparklessJob.create(tmp_path, {SINK: SECOND_SINK})
    with wording.raises(InvalidRequest):
        job.loaded()


def test_a_checkpoint_is_recorded_before_any_participant_is_called(tmp_path: Path) -> None:
    """What a participant does for a checkpoint can always be found by its id, also after a crash.

    Case: CheckpointCoordinatorMasterHooksTest.ensureRegisteredAtHookTime
    """
    job = job_with_input(tmp_path)
    recorded = []
    run(job, SparklessRunner(before=lambda plan: recorded.append((job.pending.checkpoint_id, plan.checkpoint_id))))
    assert recorded == [(1, 1)]


def test_every_participant_is_called_for_every_checkpoint(tmp_path: Path) -> None:
    """Also one that has nothing new: its position is carried on.

    Case: CheckpointCoordinatorMasterHooksTest.testHooksAreCalledOnTrigger
    """
    job = SparklessJob.create(tmp_path, SECOND_SOURCE)
    other = tmp_path / "other"
    other.mkdir()
    (other / "o.csv").write_text("k\n7\n")
    for name in ("a", "b"):
        job.land(f"{name}.csv")
        run(job)
        head = job.context.head().state.head()
        assert head is not None
        metadata = job.context.metadata(head)
        assert set(metadata.sources) == {"rows", "other"}
        assert set(metadata.sinks) == set(metadata.tables) == {"table"}
        assert metadata.sources["other"].consumed != ()


def test_every_participant_gets_its_stored_state_back(tmp_path: Path) -> None:
    """The source its position, the sink the contents of its table: nothing is read or published twice.

    Case: CheckpointCoordinatorMasterHooksTest.testHooksAreCalledOnRestore
    """
    job = job_with_input(tmp_path)
    runner = SparklessRunner()
    run(job, runner)
    job.land("b.csv", "k,v\n2,b\n")
    run(job, runner)
    read = [[obj.key for item in plan.inputs for obj in item.objects] for plan in runner.plans]
    assert read == [["a.csv"], ["b.csv"]]
    head = job.context.head().state.head()
    assert head is not None
    assert job.context.metadata(head).sinks["table"].predecessor == 1
    assert sorted(row["k"] for row in job.master.reports.read("table").to_pylist()) == [1, 2]
    assert isinstance(job.master.triggers.trigger(Session.cli()), NothingToDo)


def test_without_a_completed_checkpoint_every_participant_starts_empty(tmp_path: Path) -> None:
    """What an aborted first epoch had read and staged is forgotten.

    Case: CheckpointCoordinatorMasterHooksTest.testHookReset
    """

    def decline(plan: EpochPlan) -> None:
        raise SubtaskDeclined("no", reason="ABORTED_BY_USER")

    job = job_with_input(tmp_path)
    runner = SparklessRunner(after=decline)
    with pytest.raises(SubtaskDeclined):
        run(job, runner)
    again = SparklessRunner()
    run(job, again)
    (first,), (anew,) = runner.plans[0].inputs, again.plans[0].inputs
    assert again.plans[0].base == 0
    assert [replace(obj, planned_ms=None) for obj in anew.objects] == [
        replace(obj, planned_ms=None) for obj in first.objects
    ]
    assert job.master.reports.read("table").to_pylist() == [{"k": 1, "rows": 1}]


def test_a_sink_that_refuses_fails_the_checkpoint_before_the_commit_point(tmp_path: Path) -> None:
    """Its table is not where this lineage left it: counted, with its own reason, and nothing of the epoch is visible.

    Case: CheckpointCoordinatorMasterHooksTest.testHookCallFailsOnTrigger
    Case: CheckpointCoordinatorTriggeringTest.testTriggerCheckpointSnapshotMasterHookFailed
    """
    job = job_with_input(tmp_path)
    run(job)
    for path in (tmp_path / "lake" / "table" / HEADS).iterdir():
        path.unlink()
    job.land("b.csv")
    with wording.raises(InvalidRequest) as caught:
        run(job)
    assert "milepost resume small" in caught.value.hint
    shown = job.master.reports.show(2)
    assert (shown.status, shown.failure_reason) == ("aborted", "SINK_PREPARE_FAILED")
    assert job.context.head().state.timeline().head == 1


@pytest.mark.parametrize("rows", [Decimal(1), "many"], ids=["cannot be stored", "is of another type"])
def test_a_participants_state_that_cannot_be_stored_fails_the_checkpoint(tmp_path: Path, rows: object) -> None:
    """Case: CheckpointCoordinatorMasterHooksTest.testSerializationFailsOnTrigger
    Case: CheckpointCoordinatorMasterHooksTest.testTypeIncompatibleWithSerializerOnStore
    """

    def odd(answers: tuple[SubtaskAnswer, ...]) -> tuple[SubtaskAnswer, ...]:
        source = answers[0]
        assert isinstance(source, Acknowledgement)
        payload = json.loads(json.dumps(source.payload))
        payload["sources"]["rows"]["rows"] = rows
        return (replace(source, payload=payload), *answers[1:])

    job = job_with_input(tmp_path)
    with pytest.raises(TypeError):
        run(job, SparklessRunner(answers=odd))
    state = job.context.head().state
    assert (state.checkpoints, state.timeline().pending) == ((), None)
    assert (state.failures.last_reason, job.staged_files(1)) == ("TASK_FAILURE", [])
    assert run(job).checkpoint_id == 2


def test_an_unclaimed_position_is_refused_unless_it_may_be_dropped(tmp_path: Path) -> None:
    """A source was removed from the spec: nothing is planned until a person allows its position to be dropped.

    Case: CheckpointCoordinatorMasterHooksTest.checkUnMatchedStateOnRestore
    """
    job = SparklessJob.create(tmp_path, SECOND_SOURCE)
    (tmp_path / "other").mkdir()
    job.land("a.csv")
    run(job)
    before = job.context.head()
    for new, old in SECOND_SOURCE.items():
        edit(job, old, new)
    job.land("b.csv")
    with wording.raises(InvalidRequest):
        run(job)
    assert job.context.head() == before
    allowed = job.master.epochs.run(Session.cli(), SparklessRunner(), allow_non_restored_state=True)
    assert allowed.checkpoint_id == 2


def test_a_position_that_cannot_be_read_keeps_the_next_checkpoint_from_being_triggered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case: CheckpointCoordinatorMasterHooksTest.testHookCallFailsOnRestore"""
    job = job_with_input(tmp_path)
    run(job)
    job.land("b.csv")
    before = job.context.head()
    outage = Fault(lambda operation, key: operation == "get" and "/consumed/" in key, Effect.UNAVAILABLE)
    with monkeypatch.context() as broken:
        break_store(broken, job.context.store_config.url, outage)
        with pytest.raises(StoreUnavailable):
            run(job)
    assert outage.reached.is_set()
    assert job.context.head() == before
    assert run(job).checkpoint_id == 2


@pytest.mark.parametrize("part", ["/_metadata", "/consumed/"])
def test_a_damaged_part_of_the_checkpoint_fails_the_restore_and_is_never_skipped(tmp_path: Path, part: str) -> None:
    """Case: CheckpointCoordinatorMasterHooksTest.testDeserializationFailsOnRestore"""
    job = job_with_input(tmp_path)
    run(job)
    job.land("b.csv")
    (key,) = [stat.key for stat in job.context.store.list("chk-") if part in stat.key]
    job.context.store.put(key, b"torn")
    runner = SparklessRunner()
    with pytest.raises(StateCorrupt):
        run(job, runner)
    assert (runner.plans, job.context.head().state.timeline().pending) == ([], None)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["sources"]["rows"].update(watermark_us="noon"),
        lambda document: document["sources"]["rows"].update(consumed=7),
        lambda document: document["sinks"]["table"].pop("rows"),
        lambda document: document["tables"]["table"].update(records=7),
    ],
)
def test_a_part_of_another_type_is_refused_on_restore(
    tmp_path: Path, change: Callable[[dict[str, dict[str, dict[str, object]]]], object]
) -> None:
    """Case: CheckpointCoordinatorMasterHooksTest.testTypeIncompatibleWithHookOnRestore"""
    job = job_with_input(tmp_path)
    run(job)
    (key,) = [stat.key for stat in job.context.store.list("chk-") if stat.key.endswith("/_metadata")]
    document = json.loads(job.context.store.get(key))
    change(document)
    with pytest.raises(StateCorrupt):
        decode_metadata(json.dumps(document).encode(), key)
