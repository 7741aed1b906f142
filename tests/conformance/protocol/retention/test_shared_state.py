"""Runs that checkpoints share: retained by reachability, never by a counter that could be wrong (I8).

Flink's shared state registry counts the users of a file. Here a file is needed while a retained checkpoint refers to
it, which is computed each time; these tests use the runs that real keyed state writes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milepost.epoch.metadata import CheckpointMetadata, OperatorSnapshot, StateTableSnapshot
from milepost.errors import StateCorrupt
from milepost.jobmaster import Session
from milepost.jobspec.graph.in_flight import input_signatures
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.retention.retention import (
    RetentionPolicy,
    handle_conflicts,
    subsumable,
    unreferenced,
)
from milepost.state.buffers.buffers import Buffer, encode_rows
from milepost.state.buffers.channel_state import ChannelFile, encode_channel_state
from milepost.state.runs.compaction import ALMOST_ALL, MAX_DELTAS
from milepost.state.runs.handles import RunKind, StateHandle
from milepost.storage.layout import channel_prefix
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import A, JobLog
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.tasks.state_lineage import GROUPS, SCHEMA, StateLineage, table


def test_a_run_is_retained_while_any_retained_checkpoint_refers_to_it(tmp_path: Path) -> None:
    """Two runs, each needed by the checkpoints that refer to it.

    Case: SharedStateRegistryTest.testRegistryNormal
    Case: SharedStateRegistryTest.testUnregisterNonInitialCheckpoint
    """
    lineage = StateLineage.on(tmp_path)
    lineage.epoch(range(100))
    lineage.epoch([1])
    base, delta = lineage.checkpoints[1], lineage.checkpoints[2] - lineage.checkpoints[1]
    assert base < lineage.checkpoints[2], "the base is carried by reference"
    assert lineage.garbage(2) == set(), "the first checkpoint goes, and nothing it shares goes with it"
    assert lineage.garbage(1) == delta
    assert lineage.garbage() == base | delta


def test_dropping_an_unknown_run_changes_nothing() -> None:
    """Neither an unknown checkpoint nor an unknown key is an error.

    Case: SharedStateRegistryTest.testUnregisterWithUnexistedKey
    """
    log = JobLog()
    log.epoch(A)
    for answer in (log.subsume(A, (99,)), log.forget(A, ("chk-00000000000000000099/t00000000000000000001/x",), 0)):
        assert isinstance(answer, AlreadyDone)
        assert answer.outcome in (Outcome.NOTHING_TO_SUBSUME, Outcome.NOTHING_TO_FORGET)
    assert unreferenced([], []) == ()


def test_changes_on_a_base_retain_it_and_a_new_base_releases_it(tmp_path: Path) -> None:
    """A base and its deltas correspond to a materialised state and its change log: each outlives its first writer.

    Case: SharedStateRegistryTest.testRegisterChangelogStateBackendHandles
    """
    lineage = StateLineage.on(tmp_path)
    (first,) = lineage.epoch(range(10))
    (second,) = lineage.epoch([1, 2])
    assert [run.kind for run in second.runs] == [RunKind.BASE, RunKind.DELTA]
    base, delta = first.runs[0].key, second.runs[1].key
    assert lineage.garbage(2) == set(), "the second checkpoint still uses the base of the first"
    (third,) = lineage.epoch(range(10))
    assert [run.kind for run in third.runs] == [RunKind.BASE]
    assert lineage.garbage(2, 3) == set(), "as long as the second stays, so does all that it refers to"
    assert lineage.garbage(3) == {base, delta}, "the newer base replaces both"


def test_objects_of_a_savepoint_are_retained_after_no_checkpoint_uses_them() -> None:
    """The savepoint's runs belong to the user: they are garbage only once the savepoint itself is deleted.

    Case: SharedStateRegistryTest.testUnregisterUnusedSavepointState
    """
    log = JobLog()
    for _ in range(3):
        log.epoch(A)
    log.record_savepoint(A, 1)
    checkpoints = log.state.checkpoints
    gone = subsumable(log.state, RetentionPolicy(1))
    assert gone == (2,)
    refers = {number: [_run(number)] for number in (1, 2, 3)}
    kept = [refers[int(one.checkpoint_id)] for one in checkpoints if one.checkpoint_id not in gone]
    assert not any(_run(1).startswith(prefix) for prefix in unreferenced(kept, [refers[2]]))
    disposed = unreferenced([refers[3]], [refers[1], refers[2]])
    assert any(_run(1).startswith(prefix) for prefix in disposed)


def test_a_file_shared_by_two_subtasks_is_deleted_with_its_last_part(tmp_path: Path) -> None:
    """After a rescale one file serves several subtasks, each for its own key groups: it is one object all the same.

    Case: SharedStateRegistryTest.testFireMergingOperatorStateRegister
    """
    lineage = StateLineage.on(tmp_path)
    ((shared,),) = (handle.runs for handle in lineage.epoch(range(100)))
    left, right = (lineage.restore(subtask, 2) for subtask in (0, 1))
    left_handle, right_handle = lineage.checkpoint([left, right])
    assert left_handle.runs[0].key == right_handle.runs[0].key == shared.key
    assert (len(left_handle.runs[0].valid), len(right_handle.runs[0].valid)) == (GROUPS // 2, GROUPS // 2)
    rewritten = lineage.restore(0, 2)
    rewritten.upsert(rewritten.rows())
    lineage.checkpoint([rewritten, lineage.restore(1, 2)])
    assert shared.key not in {run.key for run in lineage.handles[0].runs}
    assert lineage.garbage(3) == set(), "the other subtask still needs its part"
    both = [lineage.restore(0, 2), lineage.restore(1, 2)]
    both[1].upsert(both[1].rows())
    lineage.checkpoint(both)
    assert lineage.garbage(4) == {shared.key}


@pytest.mark.long
def test_small_runs_are_merged_and_then_deleted(tmp_path: Path) -> None:
    """More deltas than a restore should open become one; the base stays."""
    lineage = StateLineage.on(tmp_path)
    (first,) = lineage.epoch(range(1000))
    assert MAX_DELTAS + 1 < 1000 * ALMOST_ALL
    for number in range(MAX_DELTAS):
        (handle,) = lineage.epoch([number])
    assert len(handle.runs) == MAX_DELTAS + 1
    merged_away = {run.key for run in handle.runs[1:]}
    (merged,) = lineage.epoch([MAX_DELTAS])
    assert [run.kind for run in merged.runs] == [RunKind.BASE, RunKind.DELTA]
    assert merged.runs[0].key == first.runs[0].key
    newest = max(lineage.checkpoints)
    assert lineage.garbage(newest) == merged_away
    assert lineage.restore().rows().num_rows == 1000


def test_a_reference_that_comes_late_finds_its_run(tmp_path: Path) -> None:
    """A checkpoint may share a run that its predecessors did not use: only current references retain it.

    Runs are retained by reachability, so no use is announced: the reference in a completed checkpoint is the use.
    """
    lineage = StateLineage.on(tmp_path)
    (first,) = lineage.epoch(range(10))
    lineage.epoch([1])
    before = lineage.handles
    lineage.epoch(range(10))
    lineage.handles = before
    lineage.epoch([2])
    assert first.runs[0].key in lineage.checkpoints[4]
    assert lineage.garbage(3, 4) == set()


def test_rows_in_flight_belong_to_one_checkpoint_and_are_deleted_with_it(tmp_path: Path) -> None:
    """Channel files are never carried by reference: the next epoch processes what is in them."""
    job = SparklessJob.create(tmp_path, {"{last: 1}": "{last: 9}"})
    keys = []
    for number in range(2):
        job.land(f"{number}.csv")
        session = Session.cli()
        pending = job.trigger(session)
        file = encode_channel_state(
            {"latest": [Buffer("latest", "rows", None, None, encode_rows(table([number], 0)))]},
            directory=channel_prefix(pending.checkpoint_id, pending.token),
            key_groups=range(128),
            signatures=input_signatures(job.context.spec, job.context.graph),
        )
        assert file is not None
        job.context.store.put(file.key, file.body)
        keys.append(file.key)
        completed = job.complete(session, pending, lambda metadata, file=file: _with_channel(metadata, file))
        job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    assert job.master.reports.fsck().unreachable == ()
    job.context.store.delete([keys[1]])
    assert [item.key for item in job.master.reports.fsck().missing] == [keys[1]]
    job.context.store.put(keys[1], file.body)
    policy = RetentionPolicy(1)
    state = job.context.head().state
    assert subsumable(state, policy) == (1,)
    first, second = ([one.metadata.key, *job.context.metadata(one).references()] for one in state.checkpoints)
    assert keys[0] in unreferenced([second], [first])
    assert keys[1] not in unreferenced([second], [first])


def _with_channel(metadata: CheckpointMetadata, file: ChannelFile) -> CheckpointMetadata:
    """The same checkpoint, one of whose subtasks left rows in flight."""
    state = StateHandle("latest", range(128), 128)
    table = StateTableSnapshot(("k",), ("k",), SCHEMA, (state,))
    operator = OperatorSnapshot({"": table}, (None,), (file.handles["latest"],), (0,), 0, 0, 0, 0)
    return replace(metadata, operators={"latest": operator})


def test_a_different_object_under_a_known_key_is_illegal() -> None:
    """One key is one content; equal descriptions are one registration."""
    handle = ObjectHandle(_run(1), 10, "a" * 64)
    same = [("checkpoint 1", handle), ("checkpoint 2", handle)]
    assert handle_conflicts(same) == ()
    for other in (replace(handle, size=11), replace(handle, sha256="b" * 64)):
        (line,) = handle_conflicts([*same, ("checkpoint 3", other), ("checkpoint 4", other)])
        assert "checkpoint 1 says 10 bytes" in line
        assert "checkpoint 3 says" in line


def test_checkpoints_that_describe_a_shared_run_differently_are_not_subsumed(tmp_path: Path) -> None:
    """The leader refuses before anything is listed, and verify names the run."""
    job = SparklessJob.create(tmp_path)
    for number in range(2):
        job.land(f"{number}.csv")
        job.epoch()
    shared = job.context.metadata(job.context.head().state.checkpoints[0]).sources["rows"].consumed[0]

    def describe_otherwise(metadata: CheckpointMetadata) -> CheckpointMetadata:
        rows = metadata.sources["rows"]
        runs = tuple(replace(run, sha256="0" * 64) if run.key == shared.key else run for run in rows.consumed)
        return replace(metadata, sources={"rows": replace(rows, consumed=runs)})

    job.land("last.csv")
    session = Session.cli()
    completed = job.complete(session, job.trigger(session), describe_otherwise)
    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    before = job.context.head().state
    with wording.raises(StateCorrupt):
        job.master.epochs.subsume(session)
    assert job.context.head().state == before
    with wording.raises(StateCorrupt) as refused:
        job.master.reports.verify()
    assert shared.key in str(refused.value)


def _run(checkpoint_id: int) -> str:
    return f"chk-{checkpoint_id:020d}/t{checkpoint_id:020d}/state/latest/run.parquet"
