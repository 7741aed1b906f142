"""Jobs that have something to show on every page, and the Airflow that shows them, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from milepost.airflow.operators.dag_ids import epoch_dag_id, operate_dag_id
from milepost.errors import QualityGateFailed
from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.airflow.airflow_instance import AirflowInstance
from milepost_testkit.jobs.rollbacks import decided, roll_back
from milepost_testkit.jobs.sparkless.counted_job import SEEN_SINK
from milepost_testkit.jobs.sparkless.sparkless_job import SPEC
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edited

WELL, FAILED, FRESH = "orders", "payments", "sensors"
GATE = """quality:
  - sink: table
    expectations:
      - {type: expect_column_values_to_be_between, column: k, max_value: 90, severity: critical}
checkpointing:"""
_EDIT = {
    "sinks:\n": "  - {uid: unique, kind: deduplicate, inputs: [rows], key: [k, v]}\nsinks:\n" + SEEN_SINK,
    "last: 1": "last: 20",
    "checkpointing:": GATE,
}


@dataclass(frozen=True)
class ShownJob:
    """A job with its spec in Airflow's folder, whose epochs are run here."""

    folder: Path
    spec: Path

    @classmethod
    def create(cls, name: str, folder: Path, config: Path, edit: Mapping[str, str] | None = None) -> ShownJob:
        (folder / "landing").mkdir(parents=True)
        text = edited(SPEC, {**_EDIT, "name: small": f"name: {name}", **(edit or {})})
        spec = config / f"{name}.yaml"
        spec.write_text(text.replace("../", f"{folder}/"), encoding="utf-8")
        return cls(folder, spec)

    @property
    def master(self) -> JobMaster:
        return JobMaster(load_job(self.spec))

    def land(self, *numbers: int) -> None:
        for n in numbers:
            (self.folder / "landing" / f"{n:04}.csv").write_text(f"k,v\n0,{n}\n{n},{n}\n{-n},{n}\n")

    def run(self, epochs: int = 1) -> None:
        for _ in range(epochs):
            self.master.epochs.run(Session.cli(), SparklessRunner())


def make_jobs(folder: Path, config: Path) -> None:
    """Write the specs of the three jobs and run their epochs: one that is well, one that is FAILED, one that never ran.

    The one that is well went back once, so that it has two timelines, and has a savepoint.
    """
    well = ShownJob.create(WELL, folder / WELL, config)
    well.land(*range(1, 7))
    well.run(5)
    roll_back(well.master, 3, decision=decided("the prices of Monday were wrong"))
    well.run(2)
    well.master.savepoints.create("before-june")
    failed = ShownJob.create(FAILED, folder / FAILED, config)
    failed.land(1, 2, 95)
    failed.run(2)
    with pytest.raises(QualityGateFailed):
        failed.run()
    ShownJob.create(FRESH, folder / FRESH, config)


@contextmanager
def shown_airflow(folder: Path, *services: str) -> Iterator[AirflowInstance]:
    """Run an Airflow that has the jobs, until the block ends.

    Args:
        services: Airflow processes to run in addition to its server and its DAG processor.
    """
    instance = AirflowInstance(folder, services=("api-server", "dag-processor", *services))
    make_jobs(folder / "jobs", instance.config)
    try:
        instance.stack.start_airflow()
        wanted = {epoch_dag_id(name) for name in (WELL, FAILED, FRESH)}
        instance.until(lambda: wanted <= instance.rest.dags().keys(), "the jobs are listed")
        yield instance
    finally:
        instance.stop()


def request_rollback(airflow: AirflowInstance, job: str, checkpoint_id: int) -> str:
    """Request a rollback, and return the id of its run, whose plan waits for an approval."""
    dag_id = operate_dag_id(job)
    airflow.rest.set_paused(dag_id, False)
    run_id = airflow.rest.trigger(dag_id, {"what": "rollback", "rollback_to": str(checkpoint_id)})
    waiting = ("awaiting_input", "deferred")
    airflow.until(lambda: airflow.rest.states(dag_id, run_id).get("approve") in waiting, "the plan waits")
    return run_id
