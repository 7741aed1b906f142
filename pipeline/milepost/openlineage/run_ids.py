"""Run ids are reckoned from what the manifest says, so that every process of an epoch names the same run."""

from __future__ import annotations

from datetime import datetime, timedelta

from openlineage.client.uuid import generate_static_uuid

from milepost.jobspec.values.times import EPOCH
from milepost.openlineage.settings import ParentRun


def epoch_run_id(namespace: str, job: str, checkpoint_id: int, trigger_time_ms: int) -> str:
    """Return the id (UUIDv7) of an epoch's run.

    The time of the trigger, which the manifest keeps, also tells a job from one that had its name and place before.
    """
    return _static(trigger_time_ms, f"{namespace}.{job}.checkpoint.{checkpoint_id}")


def decision_run_id(namespace: str, job: str, version: int, at_ms: int) -> str:
    """Return the id of the run in which tables follow a decision; version: of the manifest that has it, since then."""
    return _static(at_ms, f"{namespace}.{job}.decision.{version}")


def parent_dag_run(dag_run: tuple[str, str], namespace: str, due: datetime, clear_number: int) -> ParentRun:
    """Return an Airflow DAG run under the name and id that Airflow's OpenLineage provider gives it.

    Args:
        dag_run: DAG id and run id. due: its logical date; of one without, from when on it may run.
        clear_number: how often it was cleared as a whole.
    """
    run_id = generate_static_uuid(due, f"{namespace}.{dag_run[0]}.{clear_number}".encode())
    return ParentRun(namespace, dag_run[0], str(run_id), dag_run)


def _static(at_ms: int, name: str) -> str:
    return str(generate_static_uuid(EPOCH + timedelta(milliseconds=at_ms), name.encode()))
