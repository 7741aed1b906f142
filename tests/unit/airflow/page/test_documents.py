"""Every page has its document for programs, from the same reading; the page of a job follows a running epoch by it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.jobmaster import Session
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


def test_the_document_of_a_job_has_the_parts_that_are_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    client = client_of(job, monkeypatch)
    whole = data_of(client, f"{JOB}/job.json?span=all")
    assert set(whole) == {"status", "progress", "data_flow", "time_axis", "history", "waiting", "log", "problems"}
    assert whole["progress"] is None and whole["problems"] == {}
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
