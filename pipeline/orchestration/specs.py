"""The job specs of a config folder, and the one that belongs to a DAG."""

from __future__ import annotations

from pathlib import Path

from pipeline.config.load import LoadedJob, load_job
from pipeline.protocol.errors import CheckpointError, NotFound

SPEC_SUFFIXES = (".yaml", ".yml")
EPOCH_SUFFIX = "__epoch"


def epoch_dag_id(job: str) -> str:
    return f"{job}{EPOCH_SUFFIX}"


def spec_files(config: Path) -> list[Path]:
    """The spec files directly in a folder, by name; those in its subfolders are examples and the demo's."""
    return sorted(path for path in config.glob("*") if path.suffix in SPEC_SUFFIXES and path.is_file())


def job_of_dag(config: Path, dag_id: str) -> LoadedJob:
    """Return the job whose epoch DAG has this id. The id is compared, never made into a path.

    Raises:
        NotFound: no valid spec of the folder makes such a DAG.
    """
    for path in spec_files(config):
        try:
            job = load_job(path)
        except CheckpointError:
            continue
        if epoch_dag_id(job.spec.name) == dag_id:
            return job
    raise NotFound(
        f"DAG {dag_id} is not the epoch DAG of a job: no valid spec in {config} makes it.",
        hint="If it should be one, look at the DAG's own page for what is wrong with its spec.",
    )
