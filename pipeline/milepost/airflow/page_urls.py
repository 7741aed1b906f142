"""Where the pages of Milepost are in Airflow's API server. It imports nothing heavy: every Airflow process reads it."""

from __future__ import annotations

URL_PREFIX = "/milepost"


def jobs_url() -> str:
    """Return where the page of all jobs is."""
    return f"{URL_PREFIX}/jobs"


def job_url(dag_id: str) -> str:
    """Return where the pages of a DAG's job begin; behind a further `/`, its sections."""
    return f"{jobs_url()}/{dag_id}"


def checkpoints_url(dag_id: str) -> str:
    """Return where the checkpoints of a DAG's job are; behind a further `/`, the page of one by its id."""
    return f"{job_url(dag_id)}/checkpoints"


def runbook_url(name: str) -> str:
    """Return where a page of the runbook is, by its name."""
    return f"{URL_PREFIX}/runbook/{name}"
