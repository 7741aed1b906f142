"""`milepost run` follows the restart strategy of the spec: a new checkpoint id, from the last completed checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.cli.running import epochs
from milepost.epoch.plan import EpochPlan
from milepost.errors import StoreUnavailable, SubtaskDeclined
from milepost.sinks.table.table_sink import TableSink
from milepost.spark.driver import runner as spark_runner
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import Outcome, milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

DOWN = "the store did not answer"


class Down(StoreUnavailable):
    def __init__(self) -> None:
        super().__init__(DOWN)


class Raised(SubtaskDeclined):
    def __init__(self) -> None:
        super().__init__("operator latest: it raised", reason="OPERATOR_ERROR")


def job_with(tmp_path: Path, restart: str) -> SparklessJob:
    job = SparklessJob.create(tmp_path, {"timeout: 10m": f"timeout: 10m, restart: {restart}"})
    job.land("a.csv")
    job.land("b.csv", "k,v\n1,a\n2,b\n")
    return job


def run(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch, failures: int, error: type[Down | Raised], *words: str
) -> Outcome:
    """The command, on a data plane in this process whose first so many epochs fail."""
    planned: list[EpochPlan] = []

    def fails(plan: EpochPlan) -> None:
        planned.append(plan)
        if len(planned) <= failures:
            raise error()

    monkeypatch.setattr(spark_runner, "SparkEpochRunner", lambda: SparklessRunner(before=fails))
    return milepost("run", job.folder / "config" / "small.yaml", *words)


def statuses(job: SparklessJob) -> list[str]:
    return [document.status for document in reversed(job.master.reports.list_checkpoints())]


@pytest.mark.deep
def test_an_epoch_that_failed_is_run_again_from_the_last_completed_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_with(tmp_path, "{strategy: fixed_delay, attempts: 2, delay: 0s}")
    outcome = run(job, monkeypatch, 2, Down, "--until-caught-up")
    assert outcome.exit_code == 0, outcome.stderr
    wording.matches("run", outcome.stderr)
    assert statuses(job) == ["aborted", "aborted", "subsumed", "completed"]
    assert job.master.reports.status().job_status == "running"
    assert sorted(job.master.reports.read("table").to_pylist(), key=lambda row: row["k"]) == [
        {"k": 1, "rows": 2},
        {"k": 2, "rows": 1},
    ]


def test_when_the_restarts_are_used_up_the_run_ends_with_the_failure_and_the_job_is_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_with(tmp_path, "{strategy: fixed_delay, attempts: 1, delay: 0s}")
    outcome = run(job, monkeypatch, 2, Down)
    assert outcome.exit_code == Down.exit_code
    assert DOWN in outcome.stderr and "milepost resume" in outcome.stderr
    wording.matches("run", outcome.stderr)
    assert statuses(job) == ["aborted", "aborted"]
    assert job.master.reports.status().job_status == "failed"


@pytest.mark.deep
@pytest.mark.parametrize(("attempts", "exit_code"), [(1, Down.exit_code), (2, 0)])
def test_a_completed_epoch_gives_a_fixed_delay_no_restart_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempts: int, exit_code: int
) -> None:
    """As in Flink; otherwise the restarts of a run would multiply with its epochs."""
    job = job_with(tmp_path, f"{{strategy: fixed_delay, attempts: {attempts}, delay: 0s}}")
    seen: list[int] = []

    def each_epoch_fails_once(plan: EpochPlan) -> None:
        seen.append(int(plan.epoch))
        if seen.count(int(plan.epoch)) == 1:
            raise StoreUnavailable(DOWN)

    monkeypatch.setattr(spark_runner, "SparkEpochRunner", lambda: SparklessRunner(before=each_epoch_fails_once))
    outcome = milepost("run", job.folder / "config" / "small.yaml", "--until-caught-up")
    assert outcome.exit_code == exit_code, outcome.stderr
    assert seen == [1, 1, 2, 2][: attempts + 2]


@pytest.mark.parametrize(
    "restart", ["{strategy: none}", "{strategy: failure_rate, max_failures_per_interval: 5, delay: 0s}"]
)
def test_what_would_fail_again_is_not_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restart: str) -> None:
    job = job_with(tmp_path, restart)
    outcome = run(job, monkeypatch, 1, Raised)
    assert outcome.exit_code == 1
    wording.matches("run", outcome.stderr)
    assert statuses(job) == ["aborted"]


@pytest.mark.parametrize(
    "restart",
    [
        "{strategy: exponential_delay, initial_backoff: 1ms, max_backoff: 2ms, attempts: 3}",
        "{strategy: failure_rate, max_failures_per_interval: 3, interval: 1h, delay: 0s}",
    ],
)
def test_every_strategy_restarts_and_gives_up_by_its_own_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restart: str
) -> None:
    job = job_with(tmp_path, restart)
    assert run(job, monkeypatch, 4, Down).exit_code != 0
    assert statuses(job) == ["aborted"] * 4


def test_a_sink_that_is_down_after_the_commit_point_is_no_failed_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch is complete: it is neither aborted nor run again, and the run does not end well while it is unseen."""
    job = job_with(tmp_path, "{strategy: fixed_delay, attempts: 1, delay: 0s}")

    def down(*_: object) -> bool:
        raise StoreUnavailable(DOWN)

    with monkeypatch.context() as broken:
        broken.setattr(TableSink, "move", down)
        outcome = run(job, monkeypatch, 0, Down)
    assert outcome.exit_code == Down.exit_code
    wording.matches("run", outcome.stderr)
    assert statuses(job) == ["completed"]
    assert run(job, monkeypatch, 0, Down).exit_code == 0
    assert statuses(job) == ["subsumed", "completed"]
    assert job.master.reports.read("table").num_rows == 2


def test_a_person_who_stops_the_wait_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failed epoch is aborted before the wait, and the job stays RUNNING: nothing has to be resumed."""
    job = job_with(tmp_path, "{strategy: fixed_delay, attempts: 3, delay: 1h}")

    def interrupted(seconds: float) -> None:
        if seconds == 3600:  # only the wait: threads of other libraries sleep too
            raise KeyboardInterrupt

    monkeypatch.setattr(epochs.time, "sleep", interrupted)
    outcome = run(job, monkeypatch, 1, Down)
    assert outcome.exit_code == 130
    wording.matches("run", outcome.stderr)
    assert statuses(job) == ["aborted"]
    assert job.master.reports.status().job_status == "running"
