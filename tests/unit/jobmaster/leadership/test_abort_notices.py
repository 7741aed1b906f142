"""Whoever gives an epoch up tells the subtasks that may still run for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.jobmaster.job.session import Session
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.storage.notices import AbortNotice, read_notice
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.stores.faulty_store import Effect, Fault, at
from milepost_testkit.stores.job_stores import break_store

Reason = CheckpointFailureReason


def by_its_session(job: SparklessJob, session: Session, pending: PendingCheckpoint) -> None:
    job.master.epochs.abort(session, pending.checkpoint_id, "CHECKPOINT_EXPIRED", "too slow")


def by_a_person(job: SparklessJob, session: Session, pending: PendingCheckpoint) -> None:
    job.master.lifecycle.abort_running()


def by_the_end_of_the_job(job: SparklessJob, session: Session, pending: PendingCheckpoint) -> None:
    job.master.savepoints.cancel()


def by_a_new_session(job: SparklessJob, session: Session, pending: PendingCheckpoint) -> None:
    job.master.triggers.trigger(Session.cli(), take_over=True)


@pytest.mark.parametrize(
    ("given_up", "reason"),
    [
        (by_its_session, Reason.CHECKPOINT_EXPIRED),
        (by_a_person, Reason.ABORTED_BY_USER),
        (by_the_end_of_the_job, Reason.CHECKPOINT_COORDINATOR_SHUTDOWN),
        (by_a_new_session, Reason.LEADER_TAKEN_OVER),
    ],
)
def test_every_try_of_an_aborted_epoch_learns_why_and_what_completed_last(
    tmp_path: Path,
    given_up: Callable[[SparklessJob, Session, PendingCheckpoint], None],
    reason: CheckpointFailureReason,
) -> None:
    """I11, I3: a fenced Spark job may still run under any token that the checkpoint ever had."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    completed = CheckpointId(job.epoch())
    job.land("b.csv")
    session = Session.cli()
    job.trigger(session)
    pending = job.rebind(session)
    store = job.context.store
    assert len(pending.prefixes) == 3, "of the trigger, under which its own process runs it, and of two that rebound"
    assert [read_notice(store, pending.checkpoint_id, token) for token in pending.prefixes] == [None] * 3
    given_up(job, session, pending)
    for token in pending.prefixes:
        assert read_notice(store, pending.checkpoint_id, token) == AbortNotice(reason, completed)


def test_the_subtasks_of_a_completed_epoch_are_not_notified(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    session = Session.cli()
    pending = job.trigger(session)
    job.complete(session, pending)
    answer = job.master.epochs.abort(session, pending.checkpoint_id, "INTERRUPTED", "too late")
    assert answer.outcome == "already_completed"
    assert [read_notice(job.context.store, pending.checkpoint_id, token) for token in pending.prefixes] == [None, None]


def test_a_store_that_takes_no_notice_does_not_keep_an_epoch_from_being_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fencing protects the data; a notice only saves work."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    session = Session.cli()
    pending = job.trigger(session)
    outage = Fault(at("put", "chk-"), Effect.UNAVAILABLE)
    break_store(monkeypatch, job.context.store_config.url, outage)
    answer = job.master.epochs.abort(session, pending.checkpoint_id, "CHECKPOINT_EXPIRED", "too slow")
    assert answer.outcome == "aborted"
    assert outage.reached.is_set()
    wording.matches("log", caplog.messages)
