"""Where Airflow's API server has the pages of Milepost. It imports nothing: every Airflow process reads it."""

from __future__ import annotations

URL_PREFIX = "/milepost"


def checkpoints_url(dag_id: str) -> str:
    """Return where the Checkpoints page of a DAG is; behind a further `/`, the page of a checkpoint by its id."""
    return f"{URL_PREFIX}/checkpoints/{dag_id}"
