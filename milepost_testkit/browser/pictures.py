"""Takes the pictures of the documentation, in the light and 1280 px wide: `make pictures`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from milepost.airflow.operators.dag_ids import epoch_dag_id, operate_dag_id
from milepost.airflow.page_urls import job_url, jobs_url
from milepost_testkit.browser.shown_jobs import FAILED, WELL, request_rollback, shown_airflow
from milepost_testkit.browser.tours import tour_of
from milepost_testkit.processes.processes import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGES = {
    "page-jobs.png": jobs_url(),
    "page-job.png": job_url(epoch_dag_id(FAILED)),
}
APPROVAL = "rollback-approval.png"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="milepost-") as folder:
        with shown_airflow(Path(folder), "scheduler", "triggerer") as airflow:
            run_id = request_rollback(airflow, WELL, 3)
            approval = f"/dags/{operate_dag_id(WELL)}/runs/{run_id}/tasks/approve/required_actions"
            addresses = {**PAGES, APPROVAL: approval}
            tour_of(airflow, roots=(), pictures={str(DOCS / file): address for file, address in addresses.items()})
    print("\n".join(f"docs/{file}" for file in addresses))


if __name__ == "__main__":
    main()
