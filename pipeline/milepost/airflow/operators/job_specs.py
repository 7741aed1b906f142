"""The ids of a job's DAGs, and its spec as a task documents it."""

from __future__ import annotations

import re
from pathlib import Path

from milepost.jobspec.load.load import LoadedJob

EPOCH_SUFFIX = "__epoch"
OPERATE_SUFFIX = "__operate"
BROKEN_SUFFIX = "__broken"

BROKEN_TAG = "broken spec"
"""Of a DAG that stands in place of a job whose spec is not valid."""


def epoch_dag_id(job: str) -> str:
    return f"{job}{EPOCH_SUFFIX}"


def operate_dag_id(job: str) -> str:
    return f"{job}{OPERATE_SUFFIX}"


def broken_dag_id(spec: Path) -> str:
    """Return the id of the DAG whose runs fail while a spec is not valid: by its file, for it may have no name."""
    stem = re.sub(r"[^a-z0-9_-]+|__+", "-", spec.stem.lower()).strip("-_")
    return f"{stem[:63] or 'spec'}{BROKEN_SUFFIX}"


def duplicate_dag_id(job: str) -> str:
    """Return the id of the DAG whose runs fail while another spec has the job's name."""
    return f"{epoch_dag_id(job)}__duplicate"


def is_of_a_job(dag_id: str) -> bool:
    """Return whether a DAG is one that `load_jobs` makes, by its id."""
    return dag_id.endswith((EPOCH_SUFFIX, OPERATE_SUFFIX))


def spec_as_docs(job: LoadedJob) -> dict[str, str]:
    """Return the arguments by which one task of a DAG documents the job's spec, with nothing of it resolved.

    Airflow keeps them with the DAG: its UI shows them, and the Checkpoints page reads the job from there, also where
    the folder of the specs is not.
    """
    return {"doc": str(job.path), "doc_yaml": job.text}
