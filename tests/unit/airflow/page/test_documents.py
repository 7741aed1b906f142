"""Every page has its document for programs, from the same reading; the page of a job follows a running epoch by it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from milepost.acts import ACTS
from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.page.frame.access import Rights
from milepost.codec import to_json
from milepost.errors import QualityGateFailed
from milepost.jobmaster import Session
from milepost_testkit.airflow.kept_runs import keep_run
from milepost_testkit.airflow.page_client import PageClient, page_client
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob

JOB = "/jobs/small__epoch"
AGES = re.compile(r'"(\w*age\w*|\w*elapsed\w*|lag_ms|text)": ("[^"]*"|[\d.]+|null)')


def client_of(job: CountedJob, patch: pytest.MonkeyPatch, role: str = "admin") -> PageClient:
    return page_client(patch, *job_dags(job.small.folder / "config").values(), role=role)


def data_of(client: PageClient, address: str) -> Any:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert (document["schema"], document["ok"]) == ("milepost/v1", True)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    return document["data"]


def without_ages(value: object) -> object:
    return json.loads(AGES.sub(r'"\1": 0', json.dumps(value)))


@pytest.mark.deep
def test_documents_are_those_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 3)
    client = client_of(job, monkeypatch)
    for address, command in (
        (f"{JOB}/checkpoints/2.json", ("show", job.spec_path, "2")),
        (f"{JOB}/log.json", ("history", job.spec_path, "--limit", "100")),
        (f"{JOB}/charts.json", ("plot", job.spec_path, "--limit", "30")),
    ):
        shown, printed = data_of(client, address), milepost(*command, "--json").document()
        both = shown.keys() & printed.keys()
        own, printed_too = ({name: one[name] for name in both} for one in (shown, printed))
        assert both and without_ages(own) == without_ages(printed_too), address
    status = milepost("status", job.spec_path, "--json").document()
    assert without_ages(data_of(client, f"{JOB}/job.json?part=status")["status"]) == without_ages(status)


@pytest.mark.deep
def test_the_document_of_a_job_has_the_parts_that_are_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    client = client_of(job, monkeypatch)
    whole = data_of(client, f"{JOB}/job.json?span=all")
    parts = {"status", "progress", "data_flow", "time_axis", "history", "waiting", "log", "incident"}
    assert set(whole) == parts | {"problems"}
    assert whole["progress"] is None and whole["incident"] is None and whole["problems"] == {}
    assert whole["data_flow"]["newest"]["checkpoint_id"] == 2 and whole["time_axis"]["epochs"] == 2
    assert [one["checkpoint_id"] for one in whole["history"]["checkpoints"]] == [2, 1]
    assert data_of(client, f"{JOB}/job.json?part=progress") == {"progress": None, "problems": {}}
    assert client.get(f"{JOB}/job.json?part=%3Cb%3E").status_code == 422


def test_a_running_epoch_is_followed_and_a_quiet_job_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    client = client_of(job, monkeypatch)
    assert "data-live" not in client.get(JOB).text
    job.land([3])
    job.master.triggers.trigger(Session.airflow("small__epoch", "manual__<b>", "manual", None))
    page = client.get(JOB).text
    (address,) = re.findall(r'data-live="([^"]+)" data-checkpoint="3"', page)
    progress = data_of(client, address.replace("&amp;", "&"))["progress"]
    assert (progress["checkpoint_id"], progress["stage"], progress["nodes"]) == (3, "waiting", [])
    assert progress["text"].startswith("Checkpoint 3 waits for its driver; ")
    assert {"elapsed_ms", "usual_ms", "tasks", "tasks_done"} <= set(progress)
    assert "<p data-text>Checkpoint 3 waits" in page and "<progress max=" in page and "<b>" not in page
    assert page.count("data-node=") == 3


@pytest.mark.deep
def test_an_error_of_a_document_is_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 1)
    client = client_of(job, monkeypatch)
    for address, status in ((f"{JOB}/checkpoints/9.json", 404), (f"{JOB}/compare.json?before=7&after=8", 404)):
        answer = client.get(address)
        assert answer.status_code == status and answer.json()["ok"] is False and answer.json()["error"]["message"]
    assert client.logged_out().get(f"{JOB}/job.json").status_code == 401


def test_a_viewer_gets_no_document_with_data_values_or_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 1)
    client = client_of(job, monkeypatch, role="viewer")
    assert client.get(f"{JOB}/checkpoints/1").status_code == 200
    refused = client.get(f"{JOB}/checkpoints/1.json")
    assert refused.status_code == 403 and "which you may not see" in refused.json()["error"]["message"]


@pytest.mark.deep
def test_the_incident_of_a_stopped_job_is_a_part_without_what_the_user_may_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = "{type: expect_column_values_to_not_match_regex, column: v, regex: secret}"
    edit = {"checkpointing:": f"quality:\n  - {{sink: seen, expectations: [{rule}]}}\ncheckpointing:"}
    job = CountedJob.with_epochs(tmp_path / "job", 1, edit)
    job.small.land("bad.csv", "k,v\n99,secret-value\n")
    with pytest.raises(QualityGateFailed):
        job.run()
    client = client_of(job, monkeypatch)
    for address in (f"{JOB}/job.json", f"{JOB}/job.json?part=incident"):
        incident = data_of(client, address)["incident"]
        (refused,) = incident["rules"]
        assert (incident["checkpoint_id"], incident["reason"]) == (2, "QUALITY_GATE_FAILED")
        assert refused["bounds"] == {"regex": "secret"} and "secret-value" in str(refused["rows"])
        seen = client.with_role("viewer").get(address)
        assert "secret-value" not in seen.text and seen.json()["data"]["incident"]["rules"][0]["bounds"] is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Rights, "may_read_code", lambda self, dag_id: False)
            assert data_of(client, address)["incident"]["rules"][0]["bounds"] is None


def test_form_configuration_and_runbook_are_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    client, operate = client_of(job, monkeypatch), "/jobs/small__operate"
    acts = data_of(client, f"{operate}/form.json")
    assert {"rollback", "resume"} <= {act["name"] for act in acts["acts"]} and acts["trigger"] is None
    form = data_of(client, f"{operate}/form.json?what=rollback&rollback_to=1")
    assert [act["name"] for act in form["acts"]] == ["rollback"] and form["refused"] is None
    assert "rollback_to" in {one["name"] for one in form["inputs"]} and form["dag_id"] == "small__operate"
    assert form["trigger"]["method"] == "POST" and form["trigger"]["url"].endswith("/dags/small__operate/dagRuns")
    assert form["trigger"]["body"]["conf"] == {"what": "rollback", "rollback_to": "1"}
    refused = data_of(client, f"{operate}/form.json?what=rollback&rollback_to=1&savepoint_name=x")
    assert "savepoint_name" in refused["refused"]
    assert data_of(client.with_role("viewer"), f"{operate}/form.json?what=rollback")["trigger"] is None
    configuration = data_of(client, f"{JOB}/configuration.json")
    assert configuration["same_spec"] is True and configuration["head"] == 2 and "name: small" in configuration["text"]
    titles = {section["title"] for section in configuration["sections"]}
    assert {"Checkpointing", "Source rows"} <= titles
    page = data_of(client, "/runbook/not-found.json")
    assert page["name"] == "not-found" and page["title"] and page["text"]
    assert client.get("/runbook/none.json").status_code == 404


@pytest.mark.deep
def test_a_run_is_a_document_with_its_plan_and_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    client = client_of(job, monkeypatch)
    plan = ACTS["rollback"].plan(job.master, {"to": "1"}).shown
    keep_run("small__operate", asks=plan, xcoms={("plan", "return_value"): to_json(plan)})
    run = data_of(client, "/jobs/small__operate/run.json?run=manual__1")
    assert (run["state"], run["triggered_by"], run["plan"]["text"]) == ("running", "anna", list(plan.text))
    assert run["waits_since"] and run["result"] is None and run["undo"] is None and "approved" not in run["plan"]
    assert client.get("/jobs/small__operate/run.json?run=none").json()["error"]["message"]
