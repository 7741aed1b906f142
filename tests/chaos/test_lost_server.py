"""A Spark Connect server is killed before a request: the error is typed, and the job continues once it is back."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from milepost.errors import SparkLost
from milepost.jobmaster import JobMaster, Session
from milepost.protocol.failure.restart import is_curable
from milepost.spark.driver.engines import connect
from milepost.spark.driver.runner import SparkEpochRunner
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.kill_chain import without_quality
from milepost_testkit.servers.connect_server import ConnectServer, connect_server
from milepost_testkit.servers.lost_jvm import number
from milepost_testkit.servers.lost_server import Asked, Calls, calls_to

pytestmark = pytest.mark.deep

LOCAL = 'spark: {master: "local[2]", remote: "${env:MILEPOST_SPARK_REMOTE:-}", parallelism: 2}'
MOMENTS = 4
"""So many requests of an epoch, spread over all of them."""


@dataclass
class Client:
    """A process that runs one epoch after another on a server, each on what a new process would have, or goes on."""

    job: FlightsJob
    remote: str
    server: ConnectServer
    calls: Calls
    runner: SparkEpochRunner
    days: int = 0

    def land(self) -> None:
        self.days += 1
        self.job.land([self.days])

    def run(self) -> str:
        """Return how an epoch ended, or the error of a lost server. Raises anything else."""
        try:
            report = JobMaster(self.job.load()).epochs.run(Session.cli(), self.runner)
        except SparkLost as lost:
            assert is_curable(lost) and lost.exit_code == 8
            assert "run again" in lost.hint
            return lost.message.removeprefix(f"the Spark Connect server at {self.remote} ")
        self.land()
        return report.status

    def dies(self, due: Asked, *, goes_on: bool = False) -> str:
        if not goes_on:
            self.runner = SparkEpochRunner()
        with self.calls.dies(due):
            return self.run()

    def asks(self) -> int:
        """Return how many requests a whole epoch makes."""
        self.calls.made.clear()
        assert self.run() == "completed"
        return len(self.calls.made)


@contextmanager
def client(folder: Path, monkeypatch: pytest.MonkeyPatch, *left_out: str) -> Iterator[Client]:
    """A client of a server that runs; at the end nothing of its job is lost, and none of it twice."""
    monkeypatch.setattr(connect, "_RETRIES", 1)
    monkeypatch.setattr("milepost.epoch.gate_shares.DRIVER_ROWS", 0)  # rows are judged on the server
    with connect_server(folder / "server") as server, warnings.catch_warnings(record=True) as warned:
        monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", server.environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"])
        edit = {LOCAL: f'spark: {{remote: "{server.remote}", parallelism: 2}}', "max_files: 4": "max_files: 1"}
        job = FlightsJob.create(folder / "job", edit | dict.fromkeys(left_out, ""))
        one = Client(job, server.remote, server, calls_to(server, monkeypatch), SparkEpochRunner())
        one.land()
        yield one
        assert one.run() == "completed"
        job.assert_tables_equal_the_oracle()
        assert job.master().reports.verify(deep=True).discarded == ()
        consumed = [key for epoch in job.epochs() for key in epoch]
        assert len(consumed) == len(set(consumed)) == one.days - 1
        assert not [str(warning.message) for warning in warned if "RETRIES" in str(warning.message)]


def call(name: str) -> Asked:
    return lambda asked: asked == name


def test_a_killed_server_is_reported_as_lost_and_replaced_by_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is not back yet when the epoch is run again: its address was right."""
    with client(tmp_path, monkeypatch, without_quality()) as one:
        assert one.dies(call("ExecutePlan")) == "no longer responds. Nothing of this epoch is visible."
        for _ in range(2):
            assert one.run() == "no longer responds (Connection refused). Nothing was run."
        one.server.start()


def test_a_server_may_be_killed_at_any_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Of the first epoch on a server, which asks more, and of a later one, up to the rows that are judged."""
    with client(tmp_path, monkeypatch) as one:
        first, later = one.asks(), one.asks()
        for requests, goes_on in ((first, False), (later, True)):
            step = requests // (MOMENTS // 2)
            for moment in range(seed % step, requests, step):
                if goes_on:
                    assert one.run() == "completed"
                told = one.dies(number(moment), goes_on=goes_on)
                assert "no longer responds" in told or "disconnected before" in told
                one.server.start()
