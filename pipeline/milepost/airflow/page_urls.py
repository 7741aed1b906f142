"""URLs of Milepost's pages in Airflow's API server. It imports nothing heavy: every Airflow process reads it."""

from __future__ import annotations

from urllib.parse import quote, urlencode

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


def form_path(job: str, what: str, **fields: object) -> str:
    """Return where the page of a job's form is, filled in, below where our pages begin.

    Args:
        what: an act, by its name in the form. fields: of that act, by their names without its own before them.
    """
    own = {f"{what}_{name}": _text(value) for name, value in fields.items()}
    return f"/jobs/{quote(job, safe='')}__operate/form?{urlencode({'job': job, 'what': what, **own})}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def form_url(job: str, what: str, **fields: object) -> str:
    """Return where the page of a job's form is, filled in; arguments as of `form_path`.

    Airflow's own dialog has no address that fills it in: the page has what fills it.
    """
    return f"{URL_PREFIX}{form_path(job, what, **fields)}"


def run_path(dag_id: str, run_id: str) -> str:
    """Return where Airflow has the page of a run."""
    return f"/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"
