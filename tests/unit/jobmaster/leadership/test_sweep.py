"""A newcomer's sweep races with the holder, and with any other session that ends the epoch (I9, I10)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.epoch.metadata import CheckpointMetadata
from milepost.errors import Busy
from milepost.jobmaster import Session
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.quality.verdict import GateVerdict, Verdict, VerdictStatus
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob

Meanwhile = Callable[[], object]
Change = Callable[[CheckpointMetadata], CheckpointMetadata]


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    return job


def between_judgement_and_transition(monkeypatch: pytest.MonkeyPatch, step: str, meanwhile: Meanwhile) -> None:
    """Let this happen once, just before the sweep makes its transition."""
    wanted = getattr(Leadership, step)
    happened: list[object] = []

    def late(self: Leadership, *args: object, **options: object) -> object:
        if not happened:
            happened.append(None)
            meanwhile()
        return wanted(self, *args, **options)

    monkeypatch.setattr(Leadership, step, late)


def test_a_holder_that_comes_back_is_judged_again(job: SparklessJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new token is a new lease: with take-over that one is ended, too."""
    session = Session.cli()
    job.trigger(session)
    between_judgement_and_transition(monkeypatch, "abort", lambda: job.rebind(session))
    Leadership(job.context).sweep(Session.cli(), take_over=True)
    shown = job.master.reports.show(1)
    assert (shown.status, shown.failure_reason, shown.leader.token) == ("aborted", "LEADER_TAKEN_OVER", 4)


def test_an_epoch_that_is_given_up_while_it_is_adopted_stays_given_up(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I9: one of the two wins; the newcomer goes on either way and does not end as fenced."""
    session = Session.cli()
    pending = job.trigger(session)
    finish_without_complete(job, session, monkeypatch)
    between_judgement_and_transition(monkeypatch, "complete", job.master.lifecycle.abort_running)
    Leadership(job.context).sweep(Session.cli(), take_over=True)
    assert job.master.reports.show(int(pending.checkpoint_id)).failure_reason == "ABORTED_BY_USER"
    assert job.context.head().state.timeline().pending is None


def test_a_living_newcomer_makes_a_second_one_wait(job: SparklessJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two newcomers sweep the same dead epoch: the slower one finds the faster one's lease."""
    job.trigger(Session.cli())
    faster = Session.cli()
    between_judgement_and_transition(monkeypatch, "abort", lambda: job.master.triggers.trigger(faster, take_over=True))
    slower = Leadership(job.context)
    slower.sweep(Session.cli(), take_over=True)
    leader = job.context.head().state.timeline().leader
    assert leader is not None and leader.session_id == faster.session_id and job.pending.checkpoint_id == 2
    with pytest.raises(Busy):
        job.master.triggers.trigger(Session.cli())


def finish_without_complete(
    job: SparklessJob, session: Session, monkeypatch: pytest.MonkeyPatch, change: Change = lambda made: made
) -> None:
    """Everything up to a durable `_metadata`; the process dies before the commit point."""
    with monkeypatch.context() as dying:

        def die(*_: object, **__: object) -> object:
            raise KeyboardInterrupt

        dying.setattr(Leadership, "complete", die)
        with pytest.raises(KeyboardInterrupt):
            job.complete(session, job.pending, change)


def test_an_epoch_that_its_gate_refused_is_given_up_and_not_adopted(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I7: its metadata is there and whole, as that of an epoch that may be adopted; what it says is a veto."""
    session = Session.cli()
    pending = job.trigger(session)
    refused = GateVerdict.of((Verdict("table", VerdictStatus.FAILED, 1, ()),))
    finish_without_complete(job, session, monkeypatch, lambda made: replace(made, verdict=refused))
    Leadership(job.context).sweep(Session.cli(), take_over=True)
    shown = job.master.reports.show(int(pending.checkpoint_id))
    assert (shown.status, shown.failure_reason) == ("aborted", "QUALITY_GATE_FAILED")
