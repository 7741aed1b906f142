"""`milepost backfill` as a person types it: texts, questions, exit codes, documents. The data plane is in process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from milepost.cli.running import epochs
from milepost.epoch.plan import EpochPlan
from milepost.jobmaster import Session
from milepost.protocol.manifest.transaction.requests import FreezeRequest, ThawRequest
from milepost.spark.driver import runner as spark_runner
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import Outcome, assert_clear_error, milepost
from milepost_testkit.jobs.sparkless.backfill_job import BackfillJob, mortal_session
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

_GATE = """\
quality:
  - sink: table
    expectations: [{type: expect_column_values_to_be_between, column: k, max_value: 4, severity: critical}]
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> BackfillJob:
    job = BackfillJob.create(tmp_path_factory.mktemp("prepared") / "job", 5)
    job.fix()
    return job


@pytest.fixture
def job(prepared: BackfillJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BackfillJob:
    monkeypatch.setattr(spark_runner, "SparkEpochRunner", SparklessRunner)
    return prepared.copy(tmp_path / "job")


def backfill(job: BackfillJob, *words: str) -> Outcome:
    return milepost("backfill", job.small.folder / "config" / "small.yaml", *words)


@pytest.mark.deep
def test_a_dry_run_prints_the_plan_and_changes_nothing(job: BackfillJob) -> None:
    before = job.state.version
    shown = backfill(job, "--from", "2026-03-03", "--to", "2026-03-04", "--dry-run")
    assert (shown.exit_code, shown.error) == (0, [])
    lines = shown.stdout.splitlines()
    wording.matches("backfill", shown.stdout, replace=wording.SIZES)
    plan = backfill(job, "--from", "2026-03-03", "--to", "2026-03-04", "--dry-run", "--json").document()
    assert plan["text"] == lines[:-1]
    assert [one["in_range"] for one in plan["ranges"]] == [True, True, False]
    assert job.state.version == before


@pytest.mark.deep
def test_it_needs_a_yes_where_nobody_can_be_asked_and_then_tells_what_it_did(job: BackfillJob) -> None:
    assert_clear_error(backfill(job, "--from", "2026-03-03"), 2, "--yes", golden="backfill")
    done = backfill(job, "--from", "2026-03-03", "--yes")
    assert done.exit_code == 0, done.stderr
    wording.matches("backfill", done.stdout, replace=wording.SIZES)
    job.assert_table(5, fixed=True)


def test_the_document_of_a_backfill(job: BackfillJob) -> None:
    result = backfill(job, "--from-checkpoint", "0", "--ranges-per-epoch", "5", "--yes", "--json").document()
    assert result["outcome"] == "fast_forwarded" and result["fork_point"] == 0
    assert result["next_step"] == f"milepost run {job.small.folder / 'config' / 'small.yaml'}"
    assert [one["rows_in"] for one in result["epochs"]] == [15]
    job.assert_table(5, fixed=True)


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        ((), 2),
        (("--from", "last week"), 2),
        (("--from-checkpoint", "77"), 3),
        (("--dispose", "--from", "2026-03-03"), 2),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_few_lines(
    job: BackfillJob, words: tuple[str, ...], exit_code: int
) -> None:
    assert_clear_error(backfill(job, *words, "--yes"), exit_code, golden="backfill")


def test_a_backfill_of_a_job_that_has_never_run_is_refused(tmp_path: Path) -> None:
    spec = SparklessJob.create(tmp_path).folder / "config" / "small.yaml"
    assert_clear_error(milepost("backfill", spec, "--from-checkpoint", 0), 3, "has no checkpoint yet")


def test_an_interrupted_backfill_is_reported_and_continued_or_disposed_of(
    job: BackfillJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(plan: EpochPlan) -> None:
        if plan.epoch == 4:
            raise KeyboardInterrupt

    with mortal_session() as session, pytest.raises(KeyboardInterrupt):
        job.backfill(SparklessRunner(before=interrupt), session=session)
    shown = backfill(job, "--from", "2026-03-03", "--dry-run").stdout
    wording.matches("backfill", shown, replace=wording.SIZES)
    assert_clear_error(backfill(job, "--dispose"), 2, "--yes", golden="backfill")
    given_up = backfill(job, "--dispose", "--yes")
    wording.matches("backfill", given_up.stdout, replace=wording.SIZES)
    wording.matches("backfill", backfill(job, "--dispose", "--yes").stdout, replace=wording.SIZES)
    wording.matches("backfill", backfill(job, "--from", "2026-03-03", "--dry-run").stdout, replace=wording.SIZES)


@pytest.mark.long
def test_the_gate_vetoes_a_replayed_epoch_and_does_not_judge_beyond_to(job: BackfillJob) -> None:
    """A veto leaves the live timeline running; `--to` says up to where today's expectations are to hold."""
    job.edit("checkpointing:", f"{_GATE}checkpointing:")
    vetoed = backfill(job, "--from", "2026-03-03", "--yes")
    assert_clear_error(vetoed, 5, golden="backfill")
    job.assert_table(5, fixed=False)
    assert job.state.live == "main" and job.state.status.value == "running"
    judged = backfill(job, "--from", "2026-03-03", "--to", "2026-03-04", "--yes", "--json").document()
    assert [one["quality"] for one in judged["epochs"]] == ["passed", "passed", "skipped"]
    job.assert_table(5, fixed=True)


def test_one_epoch_is_refused_while_the_live_timeline_is_frozen_and_several_wait(
    job: BackfillJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A freeze may end long before its time: the wait asks again soon."""
    context = job.small.context
    session_id = Session.cli().session_id
    freeze = FreezeRequest(session_id, 600_000)
    context.transact(freeze)
    job.land(6)
    spec = job.small.folder / "config" / "small.yaml"
    assert_clear_error(milepost("run", spec), 4, golden="run")
    waits: list[float] = []

    def thaw(seconds: float) -> None:
        waits.append(seconds)
        request = ThawRequest(session_id)
        context.transact(request)

    monkeypatch.setattr(epochs, "time", SimpleNamespace(sleep=thaw))  # of this module only: others sleep, too
    assert milepost("run", spec, "--until-caught-up").exit_code == 0
    assert len(waits) == 1 and waits[0] <= 2
    job.assert_table(6, fixed=False, fixed_from=6)
