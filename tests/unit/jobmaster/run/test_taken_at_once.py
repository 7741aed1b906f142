"""A checkpoint that is taken between its grant and its run: outside its prefix nothing is done before a look (I1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.epoch.plan import EpochPlan
from milepost.errors import CheckpointError, Fenced
from milepost.jobmaster import AbortedCheckpoint, JobMaster, Session, Triggered
from milepost.protocol.manifest.transaction.events import CheckpointTriggered
from milepost.protocol.manifest.transaction.requests import RebindRequest
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.log.records import LandedTransition
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

SESSION = Session.cli()


class _Down(Exception):
    pass


def _is_down(plan: EpochPlan) -> None:
    raise _Down


def another_session(other: JobMaster, checkpoint_id: int) -> None:
    assert isinstance(other.triggers.trigger(Session.cli(), take_over=True), Triggered)


def an_abort(other: JobMaster, checkpoint_id: int) -> None:
    assert isinstance(other.lifecycle.abort_running(), AbortedCheckpoint)


def another_try(other: JobMaster, checkpoint_id: int) -> None:
    other.context.transact(
        RebindRequest(SESSION.session_id, SESSION.holder, CheckpointId(checkpoint_id), other.context.timeout_ms)
    )


TAKERS = [another_session, an_abort, another_try]


def table(job: SparklessJob) -> dict[str, bytes]:
    """Objects at the table's location other than staged files."""
    files = [path for path in (job.folder / "lake").rglob("*") if path.is_file() and path.suffix != ".parquet"]
    return {str(path.relative_to(job.folder)): path.read_bytes() for path in files}


@pytest.mark.deep
@pytest.mark.parametrize("is_local", [True, False], ids=["directory", "bucket"])
@pytest.mark.parametrize("there", ["nothing", "reserved", "known"])
@pytest.mark.parametrize("taken_by", TAKERS)
def test_a_checkpoint_taken_over_right_after_its_grant_touches_no_table(
    taken_by: Callable[[JobMaster, int], None],
    there: str,
    is_local: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The head is read either when it is needed, as for a directory, or concurrently with the data plane."""
    job, runner = SparklessJob.create(tmp_path, {"format: parquet": "format: delta"}), SparklessRunner()
    master = job.master
    job.land("a.csv")
    if there == "reserved":  # who is the first to prepare it creates it
        with pytest.raises(_Down):
            master.epochs.run(Session.cli(), SparklessRunner(before=_is_down))
    elif there == "known":
        master.epochs.run(Session.cli(), runner)
        job.land("b.csv")
    monkeypatch.setattr(StoreConfig, "is_local", is_local)
    other = job.master

    def take(landed: LandedTransition) -> None:
        event = landed.transition.event
        if isinstance(event, CheckpointTriggered):
            taken_by(other, event.pending.checkpoint_id)

    master.context.listeners.append(take)
    before = table(job)
    with pytest.raises(Fenced):
        master.epochs.run(SESSION, runner)
    assert table(job) == before


@pytest.mark.parametrize("taken_by", TAKERS)
def test_a_checkpoint_that_is_taken_between_two_tasks_is_refused_by_each_of_them(
    taken_by: Callable[[JobMaster, int], None], tmp_path: Path
) -> None:
    """The trigger's task reads no head after its claim, and need not: every task after it decides on one."""
    job, runner = SparklessJob.create(tmp_path), SparklessRunner()
    job.land("a.csv")
    triggered = job.master.triggers.trigger(SESSION)
    assert isinstance(triggered, Triggered)
    taken_by(job.master, triggered.checkpoint_id)
    steps = [job.master.epochs.validate, job.master.epochs.complete]
    if taken_by is not another_try:
        steps.append(lambda session, checkpoint_id: job.master.epochs.run_epoch(session, checkpoint_id, runner))
    for step in steps:
        with pytest.raises(CheckpointError):
            step(SESSION, triggered.checkpoint_id)
    assert table(job) == {} and not job.context.head().state.checkpoints
