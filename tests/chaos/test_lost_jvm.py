"""The JVM of a driver dies alone, as when the kernel kills it for memory: the error is typed, and the job continues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from milepost.errors import SparkLost
from milepost.jobmaster import JobMaster, Session
from milepost.spark.driver.runner import SparkEpochRunner
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.kill_chain import without_quality
from milepost_testkit.processes.own_process import in_own_process
from milepost_testkit.servers.lost_jvm import Asked, Requests, jvms, number, requests_to_the_jvm, with_words

MOMENTS = 12
"""So many requests of an epoch, spread over all of them."""


@dataclass
class Driver:
    """A process that runs one epoch after another, and reports the death of its JVM."""

    job: FlightsJob
    requests: Requests
    runner: SparkEpochRunner

    def run(self) -> str:
        """Return how an epoch ended. Raises every error other than the loss of Spark."""
        try:
            report = JobMaster(self.job.load()).epochs.run(Session.cli(), self.runner)
        except SparkLost as lost:
            assert "run again" in lost.hint
            if "Spark no longer starts" in lost.message:
                assert "Nothing was run" in lost.message
                return "not started"
            assert "Nothing of this epoch is visible" in lost.message
            return "lost"
        return report.status

    def asks(self) -> int:
        """Return how many requests a whole epoch makes."""
        self.requests.made.clear()
        assert self.run() == "completed"
        return len(self.requests.made)

    def dies(self, due: Asked) -> str:
        with self.requests.dies(due):
            return self.run()


def in_a_process(capfd: pytest.CaptureFixture[str], act: Callable[..., None], *arguments: object) -> None:
    """Run a test in a process of its own; no stack trace is on its stderr."""
    in_own_process(_told, act, *arguments)
    said = capfd.readouterr().err
    assert "Traceback" not in said, said


def _told(act: Callable[..., None], folder: Path, days: int, *arguments: object) -> None:
    edit = {
        without_quality(): "",
        "max_files: 4": "max_files: 1",
        "timeout: 10m": "timeout: 10m, tolerable_failures: 99",
    }
    job = FlightsJob.create(folder / "job", edit)
    job.land(range(1, days + 1))
    with pytest.MonkeyPatch.context() as monkeypatch:
        act(Driver(job, requests_to_the_jvm(monkeypatch), SparkEpochRunner()), *arguments)
    job.run_until_caught_up()
    job.assert_tables_equal_the_oracle()
    consumed = [key for epoch in job.epochs() for key in epoch]
    assert len(consumed) == len(set(consumed)) == days


@pytest.mark.deep
def test_a_jvm_that_dies_amid_the_epoch_is_lost_and_the_next_run_starts_another(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    in_a_process(capfd, _amid_the_job, tmp_path, 3)


def _amid_the_job(driver: Driver) -> None:
    assert driver.run() == "completed"
    assert driver.dies(lambda request: request.startswith("a\n")) == "lost", "amid the answer of the epoch's job"


@pytest.mark.deep
def test_a_jvm_that_dies_alone_is_reported_as_lost_or_replaced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    in_a_process(capfd, _at_a_few_moments, tmp_path, 4)


def _at_a_few_moments(driver: Driver) -> None:
    assert driver.run() == "completed"
    assert driver.dies(with_words("applyModifiableSettings")) == "completed", "what has run nothing is begun anew"
    assert driver.dies(lambda request: request.startswith("a\n")) == "lost", "amid the answer of the epoch's job"
    assert driver.dies(with_words("JavaSparkContext")) == "not started"
    assert not jvms(), "what did not start is ended"
    assert driver.dies(with_words("PythonAccumulatorV2")) == "not started", "half of a context is none"
    assert driver.run() == "completed"
    assert driver.dies(with_words("removeJobTag")) == "lost", "behind the answer"


@pytest.mark.deep
def test_a_jvm_may_die_at_any_request(tmp_path: Path, seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    in_a_process(capfd, _at_any_moment, tmp_path, 2 * MOMENTS + 6, seed)


def _at_any_moment(driver: Driver, seed: int) -> None:
    """Of the first epoch of a JVM, which asks more, and of a later one."""
    first, later = driver.asks(), driver.asks()
    for requests, is_first in ((first, True), (later, False)):
        step = requests // (MOMENTS // 2)
        for moment in range(seed % step, requests, step):
            if is_first:
                psutil.wait_procs([*map(_killed, jvms())], 60)
            else:
                assert driver.run() == "completed"
            assert driver.dies(number(moment)) in ("lost", "not started", "completed")


def _killed(process: psutil.Process) -> psutil.Process:
    process.kill()
    return process
