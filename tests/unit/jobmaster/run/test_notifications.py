"""What became of other checkpoints reaches the subtasks of the next epoch (I11): running epochs, real tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from milepost.epoch.plan import EpochPlan
from milepost.errors import CheckpointError, InvalidRequest, SubtaskDeclined
from milepost.jobmaster import Session
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit import wording
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec

LISTENER = """
class Listener:
    output = {{"k": "int64"}}

    def on_rows(self, key, rows, state, ctx):
        yield {{"k": key}}

    def notify_complete(self, checkpoint_id):
        self.note("complete", checkpoint_id)

    def notify_aborted(self, checkpoint_id):
        self.note("aborted", checkpoint_id)

    def notify_subsumed(self, checkpoint_id):
        self.note("subsumed", checkpoint_id)

    def note(self, what, checkpoint_id):
        with open({notes!r}, "a") as notes:
            print(what, checkpoint_id, file=notes)
"""
OPERATOR = {
    "{uid: latest, kind: aggregate, inputs: [rows], key: [k], aggregates: {rows: count(*)}}": (
        '{uid: latest, kind: process, inputs: [rows], key: [k], function: "listener:Listener"}'
    ),
    "mode: upsert": "mode: append",
    "checkpointing:": "spark: {parallelism: 1}\ncheckpointing:",
}


class ListeningJob:
    """A job whose operator records its notifications."""

    def __init__(self, folder: Path, edit: Mapping[str, str] | None = None) -> None:
        self.job = SparklessJob.create(folder, OPERATOR)
        self.notes = folder / "notes"
        text = LISTENER.format(notes=str(self.notes))
        for old, new in (edit or {}).items():
            assert old in text
            text = text.replace(old, new)
        (folder / "config" / "listener.py").write_text(text)

    def epoch(self, runner: SparklessRunner | None = None) -> list[str]:
        """Land an object and run an epoch; return the notifications of the operator."""
        self.notes.write_text("")
        self.job.land(f"{len(list((self.job.folder / 'landing').iterdir()))}.csv")
        self.job.master.epochs.run(Session.cli(), runner or SparklessRunner())
        return self.told()

    def told(self) -> list[str]:
        return self.notes.read_text().splitlines()

    def failed_epoch(self) -> list[str]:
        with pytest.raises(SubtaskDeclined):
            self.epoch(SparklessRunner(after=_decline))
        return self.told()


def _decline(plan: EpochPlan) -> None:
    reason = CheckpointFailureReason.OPERATOR_ERROR
    raise SubtaskDeclined(f"checkpoint {plan.checkpoint_id}: planned", reason=reason.value, detail="planned")


def test_the_epoch_that_continues_a_completed_checkpoint_notifies_of_it(tmp_path: Path) -> None:
    """Of the newest alone: with `retained: {last: 1}` every older one is subsumed, which is their only notification."""
    job = ListeningJob(tmp_path)
    assert job.epoch() == []
    assert job.epoch() == ["complete 1"]
    assert job.epoch() == ["complete 2", "subsumed 1"]


def test_an_aborted_checkpoint_is_notified_after_the_latest_completed_one_until_an_epoch_completes(
    tmp_path: Path,
) -> None:
    """At least once: the notified epoch may itself be lost."""
    job = ListeningJob(tmp_path)
    job.epoch()
    assert job.failed_epoch() == ["complete 1"]
    job.job.master.lifecycle.resume()
    assert job.failed_epoch() == ["complete 1", "aborted 2"]
    job.job.master.lifecycle.resume()
    assert job.epoch() == ["complete 1", "aborted 2", "aborted 3"]
    assert job.epoch() == ["complete 4", "subsumed 3"]


@pytest.mark.deep
def test_a_rollback_notifies_subtasks_of_its_target(tmp_path: Path) -> None:
    """The abandoned timeline is not reported: its checkpoints are neither aborted nor subsumed."""
    job = ListeningJob(tmp_path)
    spec = tmp_path / "config" / "small.yaml"
    edit_spec(spec, {"last: 1": "last: 5"})
    for _ in range(3):
        job.epoch()
    roll_back(job.job.master, "1")
    assert job.epoch() == ["complete 1"]


def test_a_listener_that_fails_declines_the_epoch_with_its_line(tmp_path: Path) -> None:
    job = ListeningJob(tmp_path, {'self.note("complete", checkpoint_id)': "raise KeyError(checkpoint_id)"})
    job.epoch()
    with wording.raises(CheckpointError):
        job.epoch()
    assert job.job.context.head().state.timeline().head == 1


def test_a_method_named_almost_like_a_notification_is_refused(tmp_path: Path) -> None:
    """As Flink calls it; otherwise it would wait indefinitely."""
    job = ListeningJob(tmp_path, {"def notify_complete": "def notify_checkpoint_complete"})
    with wording.raises(InvalidRequest):
        job.epoch()
