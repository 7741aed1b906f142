"""Run ids computed from the manifest, so every process of an epoch agrees on them."""

from __future__ import annotations

from datetime import datetime, timedelta

from openlineage.client.uuid import generate_static_uuid

from milepost.language.times import EPOCH
from milepost.openlineage.settings import ParentRun


def epoch_run_id(namespace: str, job: str, checkpoint_id: int, trigger_time_ms: int) -> str:
    """Return the id (UUIDv7) of an epoch's run.

    The trigger time, stored in the manifest, distinguishes the job from an earlier one of the same name and location.

        epoch_run_id("s3://lake", "orders", 7, 1_700_000_000_000)   018bcfe5-6800-798c-abd0-8afec441b3ff
    """
    return _static(trigger_time_ms, f"{namespace}.{job}.checkpoint.{checkpoint_id}")


def decision_run_id(namespace: str, job: str, version: int, at_ms: int) -> str:
    """Return the id of the run in which tables follow a decision. version: first manifest version with the decision."""
    return _static(at_ms, f"{namespace}.{job}.decision.{version}")


def parent_dag_run(dag_run: tuple[str, str], namespace: str, due: datetime, clear_number: int) -> ParentRun:
    """Return an Airflow DAG run under the name and id that Airflow's OpenLineage provider gives it.

    Args:
        dag_run: DAG id and run id.
        due: logical date of the DAG run, or its `run_after` if it has none.
        clear_number: how often the DAG run was cleared as a whole.
    """
    run_id = generate_static_uuid(due, f"{namespace}.{dag_run[0]}.{clear_number}".encode())
    return ParentRun(namespace, dag_run[0], str(run_id), dag_run)


def _static(at_ms: int, name: str) -> str:
    return str(generate_static_uuid(EPOCH + timedelta(milliseconds=at_ms), name.encode()))
