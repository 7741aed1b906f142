"""The job specs of a config folder, and the one that belongs to a DAG."""

from __future__ import annotations

from pathlib import Path

from milepost.protocol.records.errors import CheckpointError, NotFound
from milepost.spec.load.load import LoadedJob, load_job

SPEC_SUFFIXES = (".yaml", ".yml")
EPOCH_SUFFIX = "__epoch"
ROLLBACK_SUFFIX = "__rollback"
SAVEPOINT_SUFFIX = "__savepoint"
BACKFILL_SUFFIX = "__backfill"
RESUME_SUFFIX = "__resume"
SUFFIXES = (EPOCH_SUFFIX, ROLLBACK_SUFFIX, SAVEPOINT_SUFFIX, BACKFILL_SUFFIX, RESUME_SUFFIX)


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


def spec_files(config: Path) -> list[Path]:
    """Return the spec files directly in a folder, by name; those in its subfolders are examples and the demo's."""
    return sorted(path for path in config.glob("*") if path.suffix in SPEC_SUFFIXES and path.is_file())


def job_of_dag(config: Path, dag_id: str) -> LoadedJob:
    """Return the job that one of its DAGs has this id. The id is compared, never made into a path.

    Raises:
        NotFound: no valid spec of the folder makes such a DAG.
    """
    for path in spec_files(config):
        try:
            job = load_job(path)
        except CheckpointError:
            continue
        if dag_id in {f"{job.spec.name}{suffix}" for suffix in SUFFIXES}:
            return job
    raise NotFound(
        f"DAG {dag_id} is not a DAG of a job: no valid spec in {config} makes it.",
        hint="If it should be one, look at the DAG's own page for what is wrong with its spec.",
    )
