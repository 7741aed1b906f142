"""A team's own DAG file, in a bundle of their own: their jobs by `load_jobs`, and an epoch among their own tasks."""

from __future__ import annotations

import pytest

from milepost.jobmaster import JobMaster
from milepost.jobspec.load.load import load_job
from milepost_testkit.airflow.airflow_instance import AirflowInstance

TEAM_DAG = """
from pathlib import Path

from airflow.sdk import DAG, task

from milepost.airflow.dags import MilepostTaskGroup, load_jobs

load_jobs(globals(), "jobs")

with DAG("ours", schedule=None, default_args={{"owner": "team"}}):

    @task
    def land():
        Path("{landing}").mkdir(parents=True)
        Path("{landing}", "a.csv").write_text("carrier,delay\\nAA,5\\n")

    @task
    def report(triggered):
        print("published:", triggered["checkpoint_id"])

    epoch = MilepostTaskGroup(job="among_tasks.yaml", group_id="epoch")
    land() >> epoch >> report(epoch.get_child_by_label("trigger_checkpoint").output)
"""


@pytest.mark.deep
def test_a_team_s_own_dag_file_has_its_jobs_and_an_epoch_among_its_tasks(airflow: AirflowInstance) -> None:
    """None of it is where Milepost's clone has its specs: the page finds each job by its DAG."""
    table = airflow.folder / "jobs" / "among_tasks" / "lake"
    among_tasks = airflow.spec("among_tasks")
    of_team = airflow.spec("of_team") + f"schedule: {{asset: file://{table}}}\n"
    (airflow.team / "jobs").mkdir(parents=True)
    (airflow.team / "jobs" / "of_team.yaml").write_text(of_team)
    (airflow.team / "among_tasks.yaml").write_text(among_tasks)
    (airflow.team / "ours.py").write_text(TEAM_DAG.format(landing=airflow.folder / "jobs" / "among_tasks" / "landing"))
    airflow.until(lambda: {"ours", "of_team__epoch"} <= set(airflow.rest.dags()), "the DAGs of the team's file")
    airflow.rest.set_paused("of_team__epoch", False)
    airflow.rest.set_paused("ours", False)

    run_id = airflow.rest.trigger("ours", {})

    assert airflow.wait("ours", run_id) == "success"
    states = airflow.rest.states("ours", run_id)
    assert states["epoch.abort_checkpoint"] == "skipped"
    assert {state for task_id, state in states.items() if task_id != "epoch.abort_checkpoint"} == {"success"}
    assert "published: 1" in airflow.rest.log("ours", run_id, "report", 1, -1)
    (updated,) = airflow.until(lambda: airflow.rest.runs("of_team__epoch"), "the run that the table's update asks for")
    assert JobMaster(load_job(airflow.team / "among_tasks.yaml")).reports.list_checkpoints()[0].airflow.bundle == "team"
    assert updated["run_type"] == "asset_triggered"
    assert airflow.wait("of_team__epoch", updated["dag_run_id"]) == "success", "nothing has landed for it"
    for dag_id, shown in (("ours", "among_tasks"), ("of_team__epoch", "of_team"), ("of_team__operate", "of_team")):
        page = airflow.page(f"/milepost/jobs/{dag_id}/checkpoints")
        assert (page.status_code, f"<h1>{shown}</h1>" in page.text) == (200, True)
