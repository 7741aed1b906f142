"""Workers that die, rows that vanish between stages, code and attempts that differ: the epoch is right or declined."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from milepost.errors import SubtaskDeclined
from milepost.spark.driver.engines.session import TASK_ATTEMPTS
from milepost.tables.records.table_keys import DATA
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.kill_chain import without_quality
from milepost_testkit.runners.planes import epochs_in_process
from milepost_testkit.tasks.faults.worker_faults import KillFirst, KillOnce, TwoAttempts, Workers, tamper_once


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> FlightsJob:
    """Two source subtasks, two stateful ones on each of two levels, several buffers on a channel; one good epoch."""
    edit = {
        without_quality(): "",
        "max_files: 4": "max_files: 2",
        "timeout: 10m": "timeout: 10m, tolerable_failures: 1",
        "parallelism: 2": "parallelism: 2, buffer_size: 1KB",
    }
    job = FlightsJob.create(tmp_path_factory.mktemp("healthy") / "job", edit)
    job.land(range(1, 3))
    with epochs_in_process():
        job.run()
    return job


@pytest.fixture
def job(healthy: FlightsJob, tmp_path: Path) -> FlightsJob:
    """A copy of the healthy job, with input for its next epoch."""
    job = FlightsJob(Path(shutil.copytree(healthy.folder, tmp_path / "job")))
    job.land(range(3, 5))
    return job


@pytest.mark.parametrize(
    ("level", "kind"),
    [
        pytest.param(0, None, marks=pytest.mark.deep, id="source stage"),
        pytest.param(0, "barrier", marks=pytest.mark.deep, id="source stage, at its barrier"),
        pytest.param(1, "buffer", marks=pytest.mark.deep, id="stateful stage"),
        pytest.param(1, "ack", id="stateful stage, state uploaded"),
    ],
)
def test_a_killed_worker_is_replaced_by_spark_and_changes_nothing(
    job: FlightsJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int, kind: str | None
) -> None:
    """I12: the retried attempt sends the same rows; `show` proves which attempts the checkpoint is made of."""
    workers = Workers(monkeypatch, tmp_path / "executions")
    workers.fault = KillOnce(level, kind, str(tmp_path / "killed"))
    checkpoint = job.run().checkpoint_id
    assert (tmp_path / "killed").exists()
    shown = job.master().reports.show(checkpoint)
    attempts = [(task.level, task.attempt) for task in shown.tasks]
    assert (level, 1) in attempts
    assert {at for at, attempt in attempts if attempt} == {level}
    again = sorted({(task.level, task.subtask) for task in shown.tasks if task.attempt})
    assert [(one.level, one.subtask) for one in shown.recreated] == again
    assert {(one.attempts, one.base) for one in shown.recreated} == {(2, 1)}
    ran = workers.executions(level, "both", "operators", "output")
    assert [one for one in ran if not one.ended and one.attempt == 0]
    job.assert_tables_equal_the_oracle()
    assert job.master().reports.verify(deep=True).discarded == ()


def test_an_epoch_whose_workers_die_too_often_is_run_again_by_the_restart_strategy(
    job: FlightsJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark gives the job up; the run does not: a new checkpoint id, from the last completed checkpoint."""
    restart = "restart: {strategy: fixed_delay, attempts: 1, delay: 0s}"
    spec = job.spec_path.read_text().replace("timeout: 10m", f"timeout: 10m, {restart}")
    job.spec_path.write_text(spec)
    workers = Workers(monkeypatch, tmp_path / "executions")
    workers.fault = KillFirst(1, TASK_ATTEMPTS, str(tmp_path))
    outcome = milepost("run", job.spec_path)
    assert outcome.exit_code == 0, outcome.stderr
    assert "restart 1 of 1" in outcome.stderr
    newest, failed, first = job.master().reports.list_checkpoints()
    assert [one.status for one in (newest, failed, first)] == ["completed", "aborted", "completed"]
    assert failed.failure_reason == "TASK_FAILURE"
    assert newest.checkpoint_id == failed.checkpoint_id + 1
    job.assert_tables_equal_the_oracle()


def _without(condition: str) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: rows.filter(f"NOT ({condition})")


def _with_a_longer_payload(condition: str) -> Callable[[DataFrame], DataFrame]:
    def change(rows: DataFrame) -> DataFrame:
        longer = F.concat(F.col("payload"), F.lit(b"\0"))
        return rows.withColumn("payload", F.when(F.expr(condition), longer).otherwise(F.col("payload")))

    return change


BUFFERS = {r"\b\d+ buffers, \d+ arrived": "{number} buffers, {number} arrived"}
CHANNEL = "subtask = 0 AND channel = 1"


@pytest.mark.parametrize("exchange", [1, pytest.param(2, marks=pytest.mark.deep)])
@pytest.mark.parametrize(
    ("change", "reason", "says"),
    [
        (
            _without(f"{CHANNEL} AND kind = 'buffer' AND sequence = 0"),
            "CHANNEL_INCOMPLETE",
            "channel 1",
        ),
        pytest.param(
            _without(f"{CHANNEL} AND kind = 'barrier'"),
            "CHANNEL_INCOMPLETE",
            "channel 1",
            marks=pytest.mark.deep,
        ),
        pytest.param(
            _without(f"{CHANNEL} AND kind = 'ack'"),
            "CHANNEL_INCOMPLETE",
            "channel 1",
            marks=pytest.mark.deep,
        ),
        pytest.param(
            _with_a_longer_payload(f"{CHANNEL} AND kind = 'buffer' AND sequence = 0"),
            "CHANNEL_DIGEST_MISMATCH",
            "channel 1",
            marks=pytest.mark.deep,
        ),
    ],
    ids=["buffer lost", "barrier lost", "acknowledgement lost", "buffer changed"],
)
def test_rows_lost_or_changed_inside_an_exchange_decline_the_epoch(
    job: FlightsJob,
    monkeypatch: pytest.MonkeyPatch,
    exchange: int,
    change: Callable[[DataFrame], DataFrame],
    reason: str,
    says: str,
) -> None:
    """I12: count and digest of every channel; the declined epoch leaves nothing, and the next run is right."""
    tamper_once(monkeypatch, exchange, change)
    assert f"{exchange}/0" in declined(job, reason, says)
    recovers(job)


def test_a_worker_that_runs_other_code_declines(job: FlightsJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """I13: what a long-lived worker once imported is what it runs."""
    with monkeypatch.context() as patch:
        patch.setattr("milepost.epoch.code_hash.CODE_HASH", "f" * 64)
        declined(job, "CODE_MISMATCH", "ffffffffffff")
    recovers(job, on_spark=True)


def test_two_attempts_of_one_subtask_are_seen_only_by_comparing_all_acknowledgements(
    job: FlightsJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I12, I7: each receiver saw a whole channel of a consistent attempt, but not of the same one."""
    workers = Workers(monkeypatch, tmp_path / "executions")
    workers.fault = TwoAttempts()
    declined(job, "ATTEMPTS_MIXED", "0/0")
    workers.fault = None
    recovers(job)


def declined(job: FlightsJob, reason: str, says: str) -> str:
    """The epoch declines for this reason, is aborted, and nothing of it is visible. Returns its message."""
    before = {name: job.master().reports.read(name) for name in ("carriers", "hourly")}
    with wording.raises(SubtaskDeclined, replace=wording.FIRST_DECLINE | BUFFERS) as caught:
        job.run()
    assert caught.value.details["reason"] == reason
    assert says in caught.value.message
    aborted, completed = job.master().reports.list_checkpoints()
    assert (aborted.status, aborted.failure_reason) == ("aborted", reason)
    assert completed.status == "completed"
    for name, table in before.items():
        assert job.master().reports.read(name).equals(table)
        assert not any(job.sink_store(name).list(f"{DATA}chk-{aborted.checkpoint_id:020}/"))
    return caught.value.message


def recovers(job: FlightsJob, *, on_spark: bool = False) -> None:
    """The next epoch is right. It needs Spark only where Spark's workers live on."""
    with nullcontext() if on_spark else epochs_in_process():
        assert job.run().status == "completed"
    job.assert_tables_equal_the_oracle()
    assert job.master().reports.verify(deep=True).discarded == ()
