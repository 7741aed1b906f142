"""Counts the clicks and seconds of each act on the pages, by a headless Chromium in a real Airflow, and prints a table.

    python -m milepost_testkit.browser.clicks

The seconds go from the loaded first page to the last step. They have Airflow's own: a scheduler starts the tasks.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from milepost.airflow.operators.dag_ids import epoch_dag_id, operate_dag_id
from milepost.airflow.page_urls import job_url, jobs_url
from milepost_testkit.browser.shown_jobs import FAILED, WELL, shown_airflow
from milepost_testkit.browser.tours import tour_of

Step = list[str]

PLANNED: Step = ["see", "waits for an approval"]
DONE: Step = ["see", "Back to the job"]
APPROVED: tuple[Step, ...] = (PLANNED, ["click", "Approve"], DONE)
ROLLED_BACK: tuple[Step, ...] = (["click", "Roll back to a checkpoint"], ["click", "Roll back…"], *APPROVED)
UNDONE: tuple[Step, ...] = (["click", "Undo"], ["click", "Plan"], *APPROVED)


@dataclass(frozen=True)
class Act:
    """What a person does, from which page.

    Attributes:
        before: clicks when values were pasted as JSON into Airflow's own dialog, its approval included.
    """

    name: str
    address: str
    steps: Sequence[Step]
    before: str


ACTS = (
    Act("roll back, from the overview", job_url(epoch_dag_id(WELL)), ROLLED_BACK, "11, 17 s"),
    Act("roll back and undo it", job_url(epoch_dag_id(WELL)), (*ROLLED_BACK, *UNDONE), "22"),
    Act("resume, from the overview", job_url(epoch_dag_id(FAILED)), (["click", "Resume"], *APPROVED), "11"),
    Act("run an epoch", job_url(epoch_dag_id(WELL)), (["click", "Run an epoch"], DONE), "8"),
    Act("find a table, from all jobs", jobs_url(), (["click", "All tables"], ["click", "seen"]), ""),
)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="milepost-") as folder:
        with shown_airflow(Path(folder), "scheduler", "triggerer") as airflow:
            for dag_id in (epoch_dag_id(WELL), *map(operate_dag_id, (WELL, FAILED))):
                airflow.rest.set_paused(dag_id, False)
            walks = {act.name: ["light", act.address, act.steps] for act in ACTS}
            walked = {walk.name: walk for walk in tour_of(airflow, roots=(), walks=walks).walks}
    print("| act | before: clicks | clicks | s |\n|---|---:|---:|---:|")
    for act in ACTS:
        print(f"| {act.name} | {act.before} | {walked[act.name].clicks} | {walked[act.name].seconds:.0f} |")


if __name__ == "__main__":
    main()
