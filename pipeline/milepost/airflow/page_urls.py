"""URLs of Milepost's pages in Airflow's API server.

Every Airflow process imports this module, so it imports nothing heavy.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode

URL_PREFIX = "/milepost"


def jobs_url() -> str:
    """Return the URL of the page of all jobs."""
    return f"{URL_PREFIX}/jobs"


def job_url(dag_id: str) -> str:
    """Return the URL of the overview of a DAG's job; its other pages are below it."""
    return f"{jobs_url()}/{dag_id}"


def checkpoints_url(dag_id: str) -> str:
    """Return the URL of the checkpoints of a DAG's job; `/<id>` below it is the page of one checkpoint."""
    return f"{job_url(dag_id)}/checkpoints"


def runbook_url(name: str) -> str:
    """Return the URL of a runbook page, by its name."""
    return f"{URL_PREFIX}/runbook/{name}"


def form_path(job: str, what: str, **fields: object) -> str:
    """Return the path of a job's filled-in form, without `URL_PREFIX`.

    `form_path("sensors", "rollback", to=41)` is `/jobs/sensors__operate/form?job=sensors&what=rollback&rollback_to=41`.

    Args:
        what: name of the act. fields: values of the act's fields, by their short names.
    """
    query = {f"{what}_{name}": _text(value) for name, value in fields.items()}
    return f"/jobs/{quote(job, safe='')}__operate/form?{urlencode({'job': job, 'what': what, **query})}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def form_url(job: str, what: str, **fields: object) -> str:
    """Return the URL of the page of a job's filled-in form; arguments as of `form_path`.

    The page has a button that triggers the run, and JSON for Airflow's trigger dialog, which no link can fill in.
    """
    return f"{URL_PREFIX}{form_path(job, what, **fields)}"


def run_path(dag_id: str, run_id: str) -> str:
    """Return the path of Airflow's page of a run."""
    return f"/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"
