"""Jobs whose epochs stop at a named phase, with the write of it in flight, until a test has struck; and their peace.

Each phase has a job of its own, so that one fault of an Airflow meets every phase at once. State and tables are in S3,
behind a proxy that holds the write back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path

import duckdb
import psutil

from milepost.jobmaster import CheckpointReport, Session
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.log.log_entries import completion_of
from milepost_testkit.airflow.e2e_job import E2eJob
from milepost_testkit.airflow.two_schedulers import TwoSchedulers
from milepost_testkit.proxies.holding_proxy import Hold, HoldingProxy
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner

ARRIVAL_S = 420.0
PEACE_S = 420.0
FINISHED_TASK = ("success", "failed", "skipped", "upstream_failed", "removed")
_TOKEN = re.compile(r"/t([0-9]{20})/")


class Phase(Enum):
    """A write of an epoch: the task that makes it, where, and what it holds."""

    TRIGGER = "trigger_checkpoint", "/manifest/", b'"CheckpointTriggered"'
    STATE = "run_epoch", "/state/", b""
    METADATA = "run_epoch", "/_metadata", b""
    COMPLETE = "complete_checkpoint", "/manifest/", b'"CheckpointCompleted"'
    PUBLISH = "notify_complete", "/_milepost/heads/", b""
    CONFIRM = "notify_complete", "/manifest/", b'"SinksConfirmed"'
    SUBSUME = "subsume", "/manifest/", b'"CheckpointsSubsumed"'

    @property
    def task_id(self) -> str:
        return self.value[0]

    def first_write(self, folder: str) -> Callable[[str, str, bytes], bool]:
        """Match the write of the first try that comes to it below a folder, and not those of later tries."""
        _, where, what = self.value
        first: list[list[str] | list[bytes]] = []

        def matches(method: str, path: str, body: bytes) -> bool:
            if method != "PUT" or folder not in path or where not in path or what not in body:
                return False
            own = _TOKEN.findall(path) or [body]
            first.append(own)
            return own == first[0]

        return matches


@dataclass(frozen=True)
class HeldEpoch:
    """A run that waits at its phase. Attributes: task: the process of the task that waits, at its write."""

    job: E2eJob
    run_id: str
    phase: Phase
    write: Hold
    task: psutil.Process

    def tries(self) -> int:
        return self.job.tries(self.run_id, self.phase.task_id)


@dataclass
class HeldJobs:
    """The jobs of the phases, by phase.

    Attributes:
        bucket: of state and tables.
    """

    two: TwoSchedulers
    proxy: HoldingProxy
    bucket: str
    jobs: dict[Phase, E2eJob] = field(default_factory=dict)

    def add(self, name: str, more: str = "") -> E2eJob:
        """Add a job with its state and table behind the proxy; each epoch drops the one before.

        Retries: a loaded machine makes a scheduler take the other for dead, and start a task once more, for nothing.
        """
        store = f'store: {{endpoint_url: "{self.proxy.endpoint_url}", region: us-east-1}}\n'
        places = {"storage": f"s3://{self.bucket}/store", "lake": f"s3://{self.bucket}/lake/{name}"}
        return self.two.airflow.add_job(name, **places, retained=1, retries=5, more=store + more)

    def job(self, phase: Phase) -> E2eJob:
        """The job of a phase; a new one has an epoch behind it, which the next one subsumes."""
        if phase not in self.jobs:
            job = self.jobs[phase] = self.add(f"at-{phase.name.lower()}")
            land_next(job)
            assert isinstance(job.master.epochs.run(Session.cli(), SparklessRunner()), CheckpointReport)
        return self.jobs[phase]

    def hold(self, *phases: Phase) -> list[HeldEpoch]:
        """Let the job of each phase begin an epoch, and wait until each waits at its phase."""
        begun = []
        for job, phase in [(self.job(phase), phase) for phase in phases]:
            land_next(job)
            write = self.proxy.hold(phase.first_write(f"/{job.name}/"))
            begun.append((job, job.trigger(), phase, write))
        held = []
        for job, run_id, phase, write in begun:
            with self.two.airflow.explained(job.dag_id, run_id):
                write.wait_for_arrival(ARRIVAL_S)
            held.append(HeldEpoch(job, run_id, phase, write, job.process(run_id, phase.task_id)))
        return held

    def assert_peace(self, *jobs: E2eJob) -> None:
        """What has ended is started again, as a supervisor of machines does; then each job gets through by itself.

        No task is left, every request is answered, and the next runs read what has landed since.
        """
        for job in jobs:
            with self.two.airflow.explained(job.dag_id, job.airflow.rest.runs(job.dag_id)[0]["dag_run_id"]):
                self.two.until(partial(is_quiet, job), f"no task of {job.name} is left", PEACE_S)
            while job.master.reports.status().unread_objects:
                run_id, state = job.run()
                assert state == "success", f"{job.name}: {run_id} is {state}"
            assert_nothing_lost_or_doubled(job)


def land_next(job: E2eJob) -> None:
    """Land an object that no other is like: a carrier of all, and one of its own."""
    number = len(landed(job)) + 1
    job.land(f"{number:04}", {"AA": number, f"C{number}": -number})


def landed(job: E2eJob) -> list[Path]:
    return [*(job.folder / "landing").glob("*.csv")]


def is_quiet(job: E2eJob) -> bool:
    """Whether every run and each of its tasks has ended."""
    rest = job.airflow.rest
    runs = rest.runs(job.dag_id)
    if any(run["state"] not in ("success", "failed") for run in runs):
        return False
    states = (state for run in runs for state in rest.states(job.dag_id, run["dag_run_id"]).values())
    return all(state in FINISHED_TASK for state in states)


def assert_nothing_lost_or_doubled(job: E2eJob) -> None:
    """The table is what DuckDB says of all that landed, each epoch is once in the history, and the store is clean."""
    query = "SELECT carrier, count(*) AS flights, sum(delay)::BIGINT AS delay_sum FROM read_csv($1) GROUP BY carrier"
    with duckdb.cursor() as db:
        wanted = db.sql(query, params=[str(job.folder / "landing" / "*.csv")]).to_arrow_table()
    master = job.master
    assert_same_rows(master.reports.read("carriers"), wanted, job.name)
    entries = JobContext(job.loaded).log.entries()
    epochs = sorted(int(done.epoch) for done in map(completion_of, entries) if done is not None)
    assert epochs == [*range(1, len(landed(job)) + 1)], f"{job.name}: one object an epoch, each epoch once"
    audit = master.reports.fsck()
    assert audit.exit_code == 0, audit
