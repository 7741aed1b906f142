"""Nine situations of a job, each staged for real in one Airflow, and pictures of the pages that show them.

    python -m milepost_testkit.browser.situations FOLDER    writes FOLDER/<job>-light.png and -dark.png

A person who looks at a picture for ten seconds should know what is wrong, since when, and what to click.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from milepost.airflow.operators.dag_ids import epoch_dag_id
from milepost.airflow.page_urls import job_url, jobs_url
from milepost.errors import QualityGateFailed
from milepost.jobmaster import JobMaster, Session, Triggered
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.load.load import load_job
from milepost.protocol.records.layout import metadata_key
from milepost_testkit.airflow.airflow_instance import AirflowInstance
from milepost_testkit.browser.shown_jobs import request_rollback
from milepost_testkit.browser.tours import tour_of
from milepost_testkit.processes.processes import free_ports
from milepost_testkit.runners.sparkless_runner import SparklessRunner

JOBS = {
    "healthy": "hazel",
    "late_flood": "cedar",
    "empty_source": "oak",
    "veto": "ash",
    "paused": "maple",
    "waiting_approval": "elm",
    "running_long": "birch",
    "broken_head": "fir",
    "store_away": "larch",
}
"""Situation -> its job. The names of the jobs do not give the situations away."""
EPOCHS = 12
SHOPS = ("north", "south", "west")
SPEC = """\
name: {name}
storage: {storage}
sources:
  sales: {{format: csv, path: {folder}/landing/*.csv, settle: 0s, event_time: at, limits_per_epoch: {{max_files: 1}},
    schema: {{id: int64, shop: string, amount: int64, at: "timestamp[us, UTC]"}}}}
operators:
  - {{uid: per_minute, kind: window, inputs: [sales], key: [shop], window: {{tumbling: 1m}},
     aggregates: {{n: count(*), total: sum(amount)}}}}
sinks:
  - {{name: sales_per_minute, input: per_minute, format: parquet, path: {folder}/lake/per_minute, mode: append}}
  - {{name: receipts, input: sales, format: parquet, path: {folder}/lake/receipts, mode: append}}
quality:
  - sink: receipts
    expectations:
      - {{type: expect_column_values_to_be_between, column: amount, min_value: 0, max_value: 500, severity: critical}}
checkpointing: {{retained: {{last: 10}}}}
"""


@dataclass(frozen=True)
class StagedJob:
    """A job of shops' sales: a file per epoch with 300 rows of one minute, in the order of their event times."""

    name: str
    folder: Path
    spec: Path

    @classmethod
    def create(cls, airflow: AirflowInstance, name: str, *, more: str = "", storage: str | None = None) -> StagedJob:
        folder = airflow.folder / "jobs" / name
        (folder / "landing").mkdir(parents=True)
        spec = airflow.config / f"{name}.yaml"
        spec.write_text(SPEC.format(name=name, folder=folder, storage=storage or folder / "store") + more)
        return cls(name, folder, spec)

    @property
    def master(self) -> JobMaster:
        return JobMaster(load_job(self.spec))

    def land(self, number: int, minute: datetime, *, late: int = 0, amount: int | None = None) -> None:
        """Land a file. late: how many of its 300 rows are from the day before. amount: of its last row."""
        rows = []
        for row in range(300):
            at = minute + timedelta(milliseconds=200 * row) - (timedelta(days=1) if row < late else timedelta())
            paid = amount if amount is not None and row == 299 else 5 + row % 90
            rows.append(f"{number * 1000 + row},{SHOPS[row % 3]},{paid},{at:%Y-%m-%dT%H:%M:%S.%f}Z")
        (self.folder / "landing" / f"{number:04}.csv").write_text("id,shop,amount,at\n" + "\n".join(rows) + "\n")

    def run(self, epochs: int = EPOCHS, *, newest: datetime | None = None) -> datetime:
        """Land and run epochs, a minute of event time each. Returns the minute after the newest one."""
        end = newest or datetime.now(UTC).replace(second=0, microsecond=0)
        for number in range(epochs):
            self.land(number, end - timedelta(minutes=epochs - number))
            self.epoch()
        return end

    def epoch(self) -> None:
        self.master.epochs.run(Session.cli(), SparklessRunner())


def _healthy(airflow: AirflowInstance, name: str) -> None:
    StagedJob.create(airflow, name).run()


def _late_flood(airflow: AirflowInstance, name: str) -> None:
    job = StagedJob.create(airflow, name)
    job.land(EPOCHS, job.run(), late=288)
    job.epoch()


def _empty_source(airflow: AirflowInstance, name: str) -> None:
    job = StagedJob.create(airflow, name, more="health: {max_age: 30m}\n")
    job.run(newest=datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=3))


def _veto(airflow: AirflowInstance, name: str) -> None:
    job = StagedJob.create(airflow, name)
    job.land(EPOCHS, job.run(), amount=-700)
    with pytest.raises(QualityGateFailed):
        job.epoch()


def _paused(airflow: AirflowInstance, name: str) -> None:
    job = StagedJob.create(airflow, name, more='schedule: {cron: "*/10 * * * *", timezone: UTC}\n')
    job.land(EPOCHS, job.run())


def _waiting_approval(airflow: AirflowInstance, name: str) -> None:
    StagedJob.create(airflow, name).run()


def _running_long(airflow: AirflowInstance, name: str) -> None:
    job = StagedJob.create(airflow, name)
    job.land(EPOCHS, job.run())
    assert isinstance(job.master.triggers.trigger(Session.cli()), Triggered)


def _broken_head(airflow: AirflowInstance, name: str) -> None:
    job = StagedJob.create(airflow, name)
    job.run()
    context = JobContext(load_job(job.spec))
    state = context.head().state
    head = state.checkpoint(state.timeline().head)
    assert head is not None
    (job.folder / "store" / job.name / metadata_key(head.checkpoint_id, head.token)).unlink()


def _store_away(airflow: AirflowInstance, name: str) -> None:
    closed = f'store: {{endpoint_url: "http://127.0.0.1:{free_ports(1)[0]}", region: us-east-1}}\n'
    StagedJob.create(airflow, name, storage="s3://lake", more=closed)


SITUATIONS: dict[str, Callable[[AirflowInstance, str], None]] = {
    "healthy": _healthy,
    "late_flood": _late_flood,
    "empty_source": _empty_source,
    "veto": _veto,
    "paused": _paused,
    "waiting_approval": _waiting_approval,
    "running_long": _running_long,
    "broken_head": _broken_head,
    "store_away": _store_away,
}
"""Situation -> what brings a job of some name into it, before Airflow starts."""


@contextmanager
def staged_airflow(folder: Path) -> Iterator[AirflowInstance]:
    """Run an Airflow with a job in each situation, until the block ends."""
    instance = AirflowInstance(folder, services=("api-server", "dag-processor", "scheduler", "triggerer"))
    for situation, stage in SITUATIONS.items():
        stage(instance, JOBS[situation])
    try:
        instance.stack.start_airflow()
        dag_ids = {epoch_dag_id(job) for job in JOBS.values()}
        instance.until(lambda: dag_ids <= instance.rest.dags().keys(), "the jobs are listed")
        for dag_id in sorted(dag_ids - {epoch_dag_id(JOBS["paused"])}):
            instance.rest.set_paused(dag_id, False)
        for is_paused in (False, True):  # who paused it, and when, is known then
            instance.rest.set_paused(epoch_dag_id(JOBS["paused"]), is_paused)
        request_rollback(instance, JOBS["waiting_approval"], 5)
        yield instance
    finally:
        instance.stop()


def main() -> None:
    target = Path(sys.argv[1]).absolute()
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="milepost-") as folder, staged_airflow(Path(folder)) as airflow:
        addresses = {"all_jobs": jobs_url(), **{job: job_url(epoch_dag_id(job)) for job in JOBS.values()}}
        for theme in ("light", "dark"):
            pictures = {str(target / f"{name}-{theme}.png"): address for name, address in addresses.items()}
            tour_of(airflow, roots=(), pictures=pictures, picture_theme=theme)
    print("\n".join(sorted(path.name for path in target.glob("*.png"))))


if __name__ == "__main__":
    main()
