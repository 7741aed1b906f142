"""The ids of a job's DAGs."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

from milepost.language.times import format_duration

EPOCH_SUFFIX = "__epoch"
OPERATE_SUFFIX = "__operate"
BROKEN_SUFFIX = "__broken"
LAND_INFIX = "__land_"

BROKEN_TAG = "broken spec"
"""Tag of a DAG that stands in for a job with an invalid spec."""


def epoch_dag_id(job: str) -> str:
    return f"{job}{EPOCH_SUFFIX}"


def operate_dag_id(job: str) -> str:
    return f"{job}{OPERATE_SUFFIX}"


def land_dag_id(job: str, every: timedelta) -> str:
    """Return the id of the DAG that lands the sources with this schedule: `clicks__land_1m`."""
    return f"{land_dag_prefix(job)}{format_duration(every)}"


def land_dag_prefix(job: str) -> str:
    """Return the prefix of the ids of a job's landing DAGs. It is unique, because no job name contains `__`."""
    return f"{job}{LAND_INFIX}"


def broken_dag_id(spec: Path) -> str:
    """Return the id of the DAG that fails its runs while a spec is not valid.

    It is made from the file name, because an invalid spec may have no job name: `My Job (1).yaml` gives
    `my-job-1__broken`.
    """
    stem = re.sub(r"[^a-z0-9_-]+|__+", "-", spec.stem.lower()).strip("-_")
    return f"{stem[:63] or 'spec'}{BROKEN_SUFFIX}"


def duplicate_dag_id(job: str) -> str:
    """Return the id of the DAG that fails its runs while another spec has the job's name."""
    return f"{epoch_dag_id(job)}__duplicate"


def is_own_dag(job: str, dag_id: str) -> bool:
    """Return whether a DAG has the tasks of a job only, and not those of a user besides."""
    return dag_id.startswith(f"{job}__")


def is_of_a_job(dag_id: str) -> bool:
    """Return whether a DAG id is one that `load_jobs` creates for a valid spec."""
    return dag_id.endswith((EPOCH_SUFFIX, OPERATE_SUFFIX)) or LAND_INFIX in dag_id
