"""Ending a job and starting it again: one transition ends it, and the next session does the remaining work (I4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.codec.records import to_json
from milepost.errors import CheckpointError, Fenced, JobNotRunnable, NotFound, StoreUnavailable
from milepost.jobmaster import JobMaster, NothingToDo, Session
from milepost.jobmaster.leadership import incarnations
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.leadership.sink_commits import SinkCommits
from milepost.protocol.records.manifest_state import CleanUp, JobStatus
from milepost.sinks.table.table_sink import TableSink
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost, milepost_on_terminal
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.specs.spec_edits import edit_spec


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    """A job with one published checkpoint and one more object to read."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.epoch()
    job.land("b.csv")
    return job


def spec_of(job: SparklessJob) -> Path:
    return job.folder / "config" / "small.yaml"


def cleanup_dies(at: str) -> Callable[[], None]:
    """The process that ends the job is killed at this step of its clean-up; returns what lets the next one live."""

    def die(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    patch = pytest.MonkeyPatch()
    patch.setattr(incarnations if at == "discard_staged" else SinkCommits, at, die)
    return patch.undo


def test_a_cancel_aborts_the_running_epoch_and_fences_its_session(job: SparklessJob) -> None:
    """One transition: aborted with Flink's reason for a coordinator that shuts down, fenced, CANCELED, then clean."""
    session = Session.cli()
    pending = job.trigger(session)
    job.stage(pending)
    answer = job.master.savepoints.cancel()
    assert answer.outcome == "canceled" and answer.aborted_checkpoint == 2 and answer.head == 1
    state = job.context.head().state
    assert state.status is JobStatus.CANCELED and state.timeline().leader is None
    (result,) = state.results
    assert (result.incarnation, result.status, result.clean_up) == (1, JobStatus.CANCELED, CleanUp.CLEAN)
    assert job.staged_files(2) == [], "what was staged is discarded"
    for step in (
        lambda: job.rebind_of(session, 2),
        lambda: job.master.epochs.validate(session, 2),
        lambda: job.master.epochs.complete(session, 2),
    ):
        with pytest.raises(Fenced):
            step()
    shown = job.master.reports.show(2)
    assert (shown.status, shown.failure_reason) == ("aborted", "CHECKPOINT_COORDINATOR_SHUTDOWN")
    assert job.master.reports.read("table").num_rows == 1, "what was published stays"


def test_a_canceled_job_runs_nothing_until_it_is_started_and_then_continues_the_head(job: SparklessJob) -> None:
    job.master.savepoints.cancel()
    with wording.raises(JobNotRunnable):
        job.master.triggers.trigger(Session.cli(), take_over=True)
    with wording.raises(JobNotRunnable):
        job.master.lifecycle.resume()
    started = job.master.restores.start()
    assert (started.outcome, started.incarnation, started.head) == ("started", 2, 1)
    assert job.epoch() == 2
    completed = job.context.head().state.checkpoint(2)  # type: ignore[arg-type]
    assert completed is not None and completed.parent == 1
    assert job.master.restores.start().outcome == "already_running"


def test_completed_checkpoints_are_published_before_a_canceled_job_is_clean(job: SparklessJob) -> None:
    """Published data is never lost: the clean-up commits what a sink has not confirmed."""
    session = Session.cli()
    job.complete(session, job.trigger(session))
    answer = job.master.savepoints.cancel()
    wording.matches("cancel", answer.published)
    assert answer.aborted_checkpoint is None and answer.head == 2
    state = job.context.head().state
    assert state.unconfirmed() == () and state.results[0].clean_up is CleanUp.CLEAN
    assert job.context.sink("table").position().checkpoint_id == 2


def refused_to_resume(master: JobMaster) -> None:
    with wording.raises(JobNotRunnable):
        master.lifecycle.resume()


def refused_to_run(master: JobMaster) -> None:
    with wording.raises(JobNotRunnable):
        master.triggers.trigger(Session.cli())


NEXT: dict[str, Callable[[JobMaster], object]] = {
    "start": lambda master: master.restores.start(),
    "cancel": lambda master: master.savepoints.cancel(),
    "abort": lambda master: master.lifecycle.abort_running(),
    "resume": refused_to_resume,
    "run": refused_to_run,
}


@pytest.mark.long
@pytest.mark.parametrize("at", ["discard_staged", "finish"])
@pytest.mark.parametrize("command", sorted(NEXT))
def test_a_crash_between_dirty_and_clean_is_finished_by_the_next_command(
    job: SparklessJob, command: str, at: str
) -> None:
    """The dirty result is durable: another process, later, does what is left before anything else."""
    session = Session.cli()
    job.complete(session, job.trigger(session))
    job.land("c.csv")
    pending = job.trigger(session := Session.cli()) if at == "discard_staged" else None
    if pending is not None:
        job.stage(pending)
    restart = cleanup_dies(at)
    with pytest.raises(KeyboardInterrupt):
        job.master.savepoints.cancel()
    restart()
    status = job.master.reports.status()
    assert (status.job_status, status.result.clean_up, status.exit_code) == ("cancelling", "dirty", 4)
    wording.matches("status", status.next_step)
    NEXT[command](job.master)
    state = job.context.head().state
    assert state.results[0].clean_up is CleanUp.CLEAN and state.unconfirmed() == ()
    assert state.incarnation == (2 if command == "start" else 1)
    if pending is not None:
        assert job.staged_files(int(pending.checkpoint_id)) == []


def test_a_sink_that_is_down_keeps_the_job_dirty_and_loses_nothing(job: SparklessJob) -> None:
    session = Session.cli()
    job.complete(session, job.trigger(session))
    down = pytest.MonkeyPatch()

    def unavailable(*_: object) -> bool:
        raise StoreUnavailable("the lake does not answer")

    down.setattr(SinkCommits, "commit", unavailable)
    with wording.raises(StoreUnavailable):
        job.master.savepoints.cancel()
    with pytest.raises(StoreUnavailable):
        job.master.restores.start()
    down.undo()
    wording.matches("cancel", job.master.savepoints.cancel().published)
    assert job.master.reports.status().job_status == "canceled"


def test_a_commit_that_fails_is_confirmed_by_nobody(job: SparklessJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """I11: a confirmation is a fact: it follows the sink's commit, so that the next start publishes what is left."""
    session = Session.cli()
    completed = job.complete(session, job.trigger(session))

    def unavailable(*_: object) -> bool:
        raise StoreUnavailable("the lake does not answer")

    with monkeypatch.context() as down:
        down.setattr(TableSink, "move", unavailable)
        with pytest.raises(StoreUnavailable):
            job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    assert [one.checkpoint_id for one in job.context.head().state.unconfirmed()] == [completed.checkpoint_id]
    assert job.master.epochs.notify_complete(session, completed.checkpoint_id, "table").published is True


def test_a_sink_that_left_the_spec_is_named_and_the_job_is_canceled_nevertheless(job: SparklessJob) -> None:
    session = Session.cli()
    job.complete(session, job.trigger(session))
    spec = spec_of(job)
    edit_spec(spec, {"name: table,": "name: other,"})
    with wording.raises(CheckpointError):
        job.master.savepoints.cancel()
    edit_spec(spec, {"name: other,": "name: table,"})
    assert job.master.savepoints.cancel().outcome == "already_canceled"
    assert job.master.reports.status().result.clean_up == "clean"


def test_an_abort_takes_the_epoch_from_its_runner(job: SparklessJob) -> None:
    session = Session.cli()
    job.stage(job.trigger(session))
    answer = job.master.lifecycle.abort_running()
    assert (answer.outcome, answer.checkpoint_id, answer.reason) == ("aborted", 2, "ABORTED_BY_USER")
    assert answer.job_status == "running" and answer.counted is False
    with pytest.raises(Fenced):
        job.master.epochs.complete(session, 2)
    assert job.staged_files(2) == []
    assert job.master.lifecycle.abort_running().outcome == "nothing_pending"
    assert job.epoch() == 3


def test_an_abort_means_the_try_that_began_meanwhile_too(job: SparklessJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver takes a new token between the look and the abort: the abort looks again."""
    session = Session.cli()
    job.trigger(session)
    abort = Leadership.abort
    tries: list[int] = []

    def late(self: Leadership, request: object) -> object:
        if not tries:
            job.rebind(session)
        tries.append(1)
        return abort(self, request)  # type: ignore[arg-type]

    monkeypatch.setattr(Leadership, "abort", late)
    assert job.master.lifecycle.abort_running().outcome == "aborted"
    assert len(tries) == 2


def test_an_abort_after_the_commit_point_changes_nothing(job: SparklessJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """I9: exactly one of complete and abort wins."""
    session = Session.cli()
    pending = job.trigger(session)
    abort = Leadership.abort

    def late(self: Leadership, request: object) -> object:
        job.complete(session, pending)
        return abort(self, request)  # type: ignore[arg-type]

    monkeypatch.setattr(Leadership, "abort", late)
    assert job.master.lifecycle.abort_running().outcome == "already_completed"
    assert job.master.reports.show(2).status == "completed"


def test_a_finished_job_is_never_run_again(job: SparklessJob) -> None:
    session = Session.cli()
    completed = job.complete(session, job.trigger(session))
    with wording.raises(JobNotRunnable):
        job.master.lifecycle.finish(session)
    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    answer = job.master.lifecycle.finish(session)
    assert (answer.outcome, answer.status, answer.head) == ("finished", "finished", 2)
    status = job.master.reports.status()
    assert (status.job_status, status.exit_code) == ("finished", 4)
    assert to_json(status.result) | {"at": None, "detail": None} == {
        "incarnation": 1,
        "status": "finished",
        "clean_up": "clean",
        "at": None,
        "head": 2,
        "detail": None,
    }
    wording.matches("status", status.result.detail)
    with wording.raises(JobNotRunnable):
        job.master.triggers.trigger(Session.cli())
    assert job.master.savepoints.cancel().outcome == "already_finished"
    assert job.master.lifecycle.finish(session).outcome == "finished", "asked again after a lost reply"
    with wording.raises(Fenced):
        job.master.lifecycle.finish(Session.cli())


def test_the_run_of_an_outdated_leader_does_not_finish_the_job(job: SparklessJob) -> None:
    """An outdated leader's result is ignored: the head has moved on, or another epoch runs."""
    outdated = Session.cli()
    completed = job.complete(outdated, job.trigger(outdated))
    job.master.epochs.notify_complete(outdated, completed.checkpoint_id, "table")
    job.land("c.csv")
    job.epoch()
    with wording.raises(Fenced):
        job.master.lifecycle.finish(outdated)
    assert job.master.reports.status().job_status == "running"


def test_a_run_that_is_already_covered_succeeds_also_when_the_job_has_ended(job: SparklessJob) -> None:
    """A cleared Airflow run of a completed checkpoint is done; it does not ask for another epoch."""
    session = Session.airflow("small__epoch", "manual__1", "manual", None)
    completed = job.complete(session, job.trigger(session))
    job.master.savepoints.cancel()
    answer = job.master.triggers.trigger(session)
    assert isinstance(answer, NothingToDo) and answer.status == "covered"
    assert job.master.epochs.complete(session, completed.checkpoint_id) == job.context.head().state.head()


def test_a_run_that_is_already_covered_publishes_what_waits(job: SparklessJob) -> None:
    """Cleared when it had completed and not published, it would end well, and its table wait for the next run."""
    session = Session.airflow("small__epoch", "manual__1", "manual", None)
    job.complete(session, job.trigger(session))
    assert job.context.head().state.unconfirmed()
    answer = job.master.triggers.trigger(session)
    assert isinstance(answer, NothingToDo) and answer.status == "covered"
    wording.matches("answers", answer.message)
    assert not job.context.head().state.unconfirmed()


@pytest.mark.parametrize("command", ["cancel", "abort", "start", "resume"])
def test_a_job_that_has_never_run_has_nothing_to_end(tmp_path: Path, command: str) -> None:
    job = SparklessJob.create(tmp_path)
    outcome = milepost(command, spec_of(job), *(["--yes"] if command == "cancel" else []))
    assert outcome.exit_code == 3
    assert "milepost run" in outcome.stderr
    with pytest.raises(NotFound):
        job.master.savepoints.cancel()
    status = job.master.reports.status()
    assert (status.job_status, status.incarnation, status.leader, status.exit_code) == (
        "initializing",
        None,
        None,
        1,
    )


@pytest.mark.long
def test_the_commands_say_what_they_did(job: SparklessJob) -> None:
    """`cancel` asks, and without a terminal only --yes answers; the rest is one line each, or one document."""
    spec = spec_of(job)
    wording.matches("abort", milepost("abort", spec).stdout)
    job.trigger(Session.cli())
    asked = milepost("cancel", spec)
    assert asked.exit_code == 2
    wording.matches("cancel", asked.error)
    assert job.pending.checkpoint_id == 2
    wording.matches("abort", milepost("abort", spec).stdout)
    job.trigger(Session.cli())
    canceled = milepost("cancel", spec, "--yes")
    assert canceled.exit_code == 0
    wording.matches("cancel", canceled.stdout)
    status = milepost("status", spec)
    assert status.exit_code == 4
    assert "canceled\n" in status.stdout
    wording.matches("status", status.stdout.splitlines()[0])
    assert f"milepost start {spec}" in status.stdout
    refused = milepost("resume", spec)
    assert refused.exit_code == 1
    wording.matches("resume", refused.stderr)
    wording.matches("cancel", milepost("cancel", spec, "--yes").stdout)
    assert milepost("start", spec, "--json").document() == {
        "outcome": "started",
        "status": "running",
        "job_status": "initializing",
        "incarnation": 2,
        "timeline": "main",
        "head": 1,
        "rolled_back_from": None,
    }
    wording.matches("start", milepost("start", spec).stdout)
    assert milepost("abort", spec, "--json").document()["outcome"] == "nothing_pending"
    events = [event["event"] for event in json.loads(milepost("history", spec, "--json").stdout)["data"]["events"]]
    assert events[:3] == ["JobStarted", "JobCleaned", "JobCanceled"]


@pytest.mark.long
@pytest.mark.parametrize("answer", ["n", "y"])
def test_a_cancel_prompts_on_a_terminal(job: SparklessJob, answer: str) -> None:
    """The user is prompted, and only a yes changes anything."""
    code, told = milepost_on_terminal("cancel", spec_of(job), answer=answer)
    assert code == 0, told
    wording.matches("cancel", told.splitlines(), replace={r"\[y/N\].*": "[y/N]"})
    ended = JobStatus.CANCELED if answer == "y" else JobStatus.RUNNING
    assert job.context.head().state.status is ended
