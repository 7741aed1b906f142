"""The tasks of a real DAG run, each a process of its own, send the events of one run."""

from __future__ import annotations

import json

import pytest

from milepost_testkit.airflow.airflow_instance import AirflowInstance
from milepost_testkit.airflow.e2e_job import GATE
from milepost_testkit.servers.lineage_schemas import assert_valid


@pytest.mark.deep
def test_the_tasks_of_a_dag_run_report_one_run_below_it(airflow: AirflowInstance) -> None:
    """START by the first task, COMPLETE by the one that notified the last sink; no other event before or after."""
    job = airflow.add_job("traced", more=GATE)
    job.land("a", {"AA": 5, "UA": 7})
    events = airflow.lineage_config.with_name("events.json")
    transport = f"transport: {{type: file, log_file_path: {events}, append: true}}\n"
    airflow.lineage_config.write_text(transport)
    try:
        run_id, state = job.run()
    finally:
        airflow.lineage_config.unlink()
    assert state == "success"
    start, complete = [json.loads(line) for line in events.read_text().splitlines()]
    assert [start["eventType"], complete["eventType"]] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    parents = {json.dumps(event["run"]["facets"]["parent"], sort_keys=True) for event in (start, complete)}
    assert len(parents) == 1 and start["run"]["facets"]["parent"]["job"]["name"] == job.dag_id
    assertions = complete["outputs"][0]["facets"]["dataQualityAssertions"]["assertions"]
    assert [(one["column"], one["success"]) for one in assertions] == [("delay_sum", True)]
    for event in (start, complete):
        assert_valid(event)
    assert "OpenLineage may not hear" not in job.log(run_id, "trigger_checkpoint")
