"""Takes the pictures of the documentation, in the light and 1280 px wide: `make pictures`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from milepost.airflow.operators.dag_ids import epoch_dag_id, operate_dag_id
from milepost.airflow.page_urls import job_url, jobs_url
from milepost_testkit.airflow.airflow_instance import AirflowInstance
from milepost_testkit.browser.shown_jobs import FAILED, WELL, shown_airflow
from milepost_testkit.browser.tours import tour_of
from milepost_testkit.processes.processes import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGES = {
    "page-jobs.png": jobs_url(),
    "page-job.png": job_url(epoch_dag_id(FAILED)),
}
APPROVAL = "rollback-approval.png"


def approval_url(airflow: AirflowInstance) -> str:
    """Ask for a rollback, and return the page of Airflow where its plan waits for an approval."""
    dag_id = operate_dag_id(WELL)
    airflow.rest.set_paused(dag_id, False)
    run_id = airflow.rest.trigger(dag_id, {"what": "rollback", "rollback_to": "3"})
    waiting = ("awaiting_input", "deferred")
    airflow.until(lambda: airflow.rest.states(dag_id, run_id).get("approve") in waiting, "the plan waits")
    return f"/dags/{dag_id}/runs/{run_id}/tasks/approve/required_actions"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="milepost-") as folder:
        with shown_airflow(Path(folder), "scheduler", "triggerer") as airflow:
            addresses = {**PAGES, APPROVAL: approval_url(airflow)}
            tour_of(airflow, roots=(), pictures={str(DOCS / file): address for file, address in addresses.items()})
    print("\n".join(f"docs/{file}" for file in addresses))


if __name__ == "__main__":
    main()
