"""An epoch runs only with the code and spec that its trigger recorded (I13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import Fenced, StoreUnavailable, SubtaskDeclined
from milepost.jobmaster import JobMaster, Session, Triggered
from milepost.jobmaster.job.code import read_recorded_code
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.transactions import BegunTransaction
from milepost.protocol.manifest.decisions import Request
from milepost.protocol.manifest.transaction.requests import RebindRequest, TriggerRequest
from milepost.protocol.records.ids import CheckpointId
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

AGGREGATE = "{uid: latest, kind: aggregate, inputs: [rows], key: [k], aggregates: {rows: count(*)}}"
PROCESS = "{uid: latest, kind: process, inputs: [rows], key: [k], function: counting:Counting}"
MODULE = """\
class Counting:
    state = {"rows": "int64"}
    output = {"k": "int64", "rows": "int64"}

    def on_rows(self, key, rows, state, ctx):
        for _ in rows:
            yield {"k": key, "rows": 1}
"""


def assert_declined(master: JobMaster, session: Session, checkpoint_id: int) -> None:
    """Try to run the epoch. The data plane must not be called."""
    runner = SparklessRunner()
    with wording.raises(SubtaskDeclined) as raised:
        master.epochs.run_epoch(session, checkpoint_id, runner)
    assert runner.plans == []
    assert raised.value.details["reason"] == "CODE_MISMATCH"


def test_a_spec_that_changes_between_trigger_and_run_declines_the_epoch(tmp_path: Path) -> None:
    """I13: the plan was made of another spec; the same checkpoint runs once the spec is what it was."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    session = Session.cli()
    triggered = job.master.triggers.trigger(session)
    assert isinstance(triggered, Triggered)
    spec = tmp_path / "config" / "small.yaml"
    before = spec.read_text()
    spec.write_text(before.replace("max_files: 1", "max_files: 2"))
    assert_declined(job.master, session, triggered.checkpoint_id)
    spec.write_text(before)
    runner = SparklessRunner()
    job.master.epochs.run_epoch(session, triggered.checkpoint_id, runner)
    assert len(runner.plans) == 1


def test_code_that_changes_between_trigger_and_run_declines_the_epoch(tmp_path: Path) -> None:
    """I13: trigger and run may be two processes; only the code that the trigger recorded may run."""
    job = SparklessJob.create(tmp_path, {AGGREGATE: PROCESS, "mode: upsert": "mode: append"})
    job.land("a.csv")
    module = tmp_path / "config" / "counting.py"
    module.write_text(MODULE)
    session = Session.cli()
    triggered = job.master.triggers.trigger(session)
    assert isinstance(triggered, Triggered)
    module.write_text(MODULE.replace('"rows": 1}', '"rows": 2}'))
    assert_declined(job.master, session, triggered.checkpoint_id)
    module.unlink()
    assert_declined(job.master, session, triggered.checkpoint_id)
    module.write_text(MODULE)
    assert read_recorded_code(job.context, job.pending).hash == job.pending.code_hash


def test_one_process_runs_an_epoch_under_the_token_of_its_trigger_and_loads_its_code_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The code that the trigger has read runs. Nothing is rebound, read or loaded twice."""
    job = SparklessJob.create(tmp_path, {AGGREGATE: PROCESS, "mode: upsert": "mode: append"})
    job.land("a.csv")
    (tmp_path / "config" / "counting.py").write_text('print("loaded")\n' + MODULE)
    session, runner = Session.cli(), SparklessRunner()
    triggered = job.master.triggers.trigger(session)
    assert isinstance(triggered, Triggered) and triggered.opened is not None
    report = job.master.epochs.run_epoch(session, triggered.checkpoint_id, runner, opened=triggered.opened)
    assert report.metadata.token == runner.plans[0].token == triggered.token
    assert capfd.readouterr().err.count("loaded") == 1
    assert job.context.head().state.version == triggered.token
    assert job.master.epochs.complete(session, triggered.checkpoint_id, report).token == triggered.token


def test_a_try_that_another_one_of_its_session_superseded_is_fenced_at_the_commit_point(tmp_path: Path) -> None:
    """I3: what an opened epoch holds is bound to its token; the second try, which rebound, is the one that counts."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    session = Session.cli()
    first, again = job.master.triggers.trigger(session), job.master.triggers.trigger(session)
    assert isinstance(first, Triggered) and isinstance(again, Triggered)
    assert first.opened is not None and again.opened is None
    stale = job.master.epochs.run_epoch(session, first.checkpoint_id, SparklessRunner(), opened=first.opened)
    staged = job.staged_files(1)
    newer = job.master.epochs.run_epoch(session, first.checkpoint_id, SparklessRunner())
    with pytest.raises(Fenced):
        job.master.epochs.complete(session, first.checkpoint_id, stale)
    assert job.master.epochs.complete(session, first.checkpoint_id, newer).token == newer.metadata.token > first.token
    assert len(staged) == 1 and not set(staged) & set(job.staged_files(1)), "what the fenced try staged is deleted"


def test_a_trigger_that_another_try_of_its_session_has_rebound_at_once_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I3: two tries under one token would write one `_metadata`; a retried task and its first try share a session."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    session = Session.airflow("small__operate", "retried", "manual", None)
    begin = JobContext.begin

    def rebound_before_it_looks(context: JobContext, request: Request) -> BegunTransaction:
        begun = begin(context, request)
        if not isinstance(request, TriggerRequest):
            return begun
        rebind = RebindRequest(session.session_id, session.holder, CheckpointId(1), context.timeout_ms)
        state = begin(context, rebind).state
        return BegunTransaction(begun.outcome, state, lambda: state)

    monkeypatch.setattr(JobContext, "begin", rebound_before_it_looks)
    runner = SparklessRunner()
    with wording.raises(Fenced):
        job.master.epochs.run(session, runner)
    assert runner.plans == []
    assert job.pending.checkpoint_id == 1, "what the other try runs is left alone"


def test_a_try_that_fails_leaves_a_later_try_of_its_session_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I3: the later one has a token of its own; the failure of the first says nothing of it."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    session = Session.cli()

    def away(context: JobContext, name: str, **_: object) -> None:
        job.rebind(session)
        raise StoreUnavailable(f"sink {name} is away")

    monkeypatch.setattr(JobContext, "reserve", away)
    with pytest.raises(StoreUnavailable):
        job.master.epochs.run(session, SparklessRunner())
    assert (job.pending.checkpoint_id, len(job.pending.prefixes)) == (1, 2)
