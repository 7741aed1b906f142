"""The ids of a job's DAGs, and its spec as a task documents it."""

from __future__ import annotations

from milepost.spec.load.load import LoadedJob

EPOCH_SUFFIX = "__epoch"
ROLLBACK_SUFFIX = "__rollback"
SAVEPOINT_SUFFIX = "__savepoint"
BACKFILL_SUFFIX = "__backfill"
RESUME_SUFFIX = "__resume"


def epoch_dag_id(job: str) -> str:
    return f"{job}{EPOCH_SUFFIX}"


def rollback_dag_id(job: str) -> str:
    return f"{job}{ROLLBACK_SUFFIX}"


def savepoint_dag_id(job: str) -> str:
    return f"{job}{SAVEPOINT_SUFFIX}"


def backfill_dag_id(job: str) -> str:
    return f"{job}{BACKFILL_SUFFIX}"


def resume_dag_id(job: str) -> str:
    return f"{job}{RESUME_SUFFIX}"


def spec_as_docs(job: LoadedJob) -> dict[str, str]:
    """Return the arguments by which one task of a DAG documents the job's spec, with nothing of it resolved.

    Airflow keeps them with the DAG: its UI shows them, and the Checkpoints page reads the job from there, also where
    the folder of the specs is not.
    """
    return {"doc": str(job.path), "doc_yaml": job.text}
