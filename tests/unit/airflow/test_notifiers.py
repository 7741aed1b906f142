"""The notifiers of failed runs that a spec names: Airflow's own, by their import path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.execution_time.xcom import XCom

from milepost.airflow.dags.dag_factory import BROKEN_TAG, job_dags
from milepost.airflow.dags.task_group import MilepostTaskGroup
from milepost.airflow.task_output.outcome import FAILURE_KEY
from milepost.errors import InvalidRequest
from milepost.jobspec.load.load import load_job
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.servers.mail_server import mail_server

SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
ARGUMENTS = (
    '{smtp_conn_id: mail, from_email: data@example.org, to: oncall@example.org, subject: "{{ milepost.job }}", '
    'html_content: "{{ milepost.line }} / {{ milepost.step }} / {{ milepost.form_url }}"}'
)
FAILED = {
    "reason": "QUALITY_GATE_FAILED",
    "detail": "too high",
    "step": "trigger small__operate: resume (in a shell: …)",
    "runbook": "milepost runbook quality-gate-failed",
}


UNREADY = """
from airflow.sdk import BaseNotifier

class Unready(BaseNotifier):
    def __init__(self):
        raise RuntimeError("no token file")

    def notify(self, context):
        pass
"""


def spec_of(folder: Path, notifier: str = SMTP, arguments: str = ARGUMENTS) -> Path:
    SparklessJob.create(folder)
    spec = folder / "config" / "small.yaml"
    told = f"airflow:\n  on_failure:\n    - {{notifier: {notifier}, arguments: {arguments}}}\n"
    spec.write_text(spec.read_text() + told)
    return spec


def left(monkeypatch: pytest.MonkeyPatch, values: dict[tuple[str, str], Any]) -> None:
    """Let Airflow have these XComs of the run."""

    def get_one(*, task_id: str, key: str, **_: object) -> Any:
        return values.get((task_id, key))

    monkeypatch.setattr(XCom, "get_one", get_one)


def test_a_real_notifier_reports_a_failed_run_with_the_text_of_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec_of(tmp_path)
    triggered = {("trigger_checkpoint", "return_value"): {"checkpoint_id": 41}}
    left(monkeypatch, triggered | {("validate", FAILURE_KEY): FAILED})
    dag = job_dags(tmp_path / "config")["small__epoch"]
    with mail_server() as server:
        connection = f"smtp://127.0.0.1:{server.port}/?disable_ssl=true&disable_tls=true"
        monkeypatch.setitem(os.environ, "AIRFLOW_CONN_MAIL", connection)
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.org")
        for callback in dag.on_failure_callback:
            callback({"dag": dag, "run_id": "manual__1", "reason": "task_failure"})
        (mail,) = server.mails
    assert mail["Subject"] == "small"
    body = mail.get_payload()
    text = body if isinstance(body, str) else body[0].get_payload(decode=True).decode()
    assert "41" in text and "QUALITY_GATE_FAILED: too high" in text
    wording.matches("run_facts", text.replace("\r\n", "\n"))
    assert (
        "small__operate: resume" in text
        and "https://airflow.example.org/milepost/jobs/small__operate/form?job=small" in text
    )


def test_both_dags_of_a_job_notify_and_a_job_without_notifiers_does_not(tmp_path: Path) -> None:
    spec_of(tmp_path / "one")
    SparklessJob.create(tmp_path / "two")
    assert [len(dag.on_failure_callback) for dag in job_dags(tmp_path / "one" / "config").values()] == [1, 1]
    assert not any(dag.on_failure_callback for dag in job_dags(tmp_path / "two" / "config").values())


@pytest.mark.parametrize(
    ("notifier", "arguments", "why"),
    [
        ("no.such.module.Notifier", "{}", "ModuleNotFoundError"),
        ("airflow.sdk.DAG", "{}", "airflow.sdk.DAG"),
        (SMTP, "{unknown: 1}", "TypeError"),
        ("notifiers_of_a_test.Unready", "{}", "RuntimeError: no token file"),
    ],
    ids=["no module", "no notifier", "unknown argument", "raises"],
)
def test_an_invalid_notifier_breaks_only_its_own_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notifier: str, arguments: str, why: str
) -> None:
    """Like an invalid spec: it is detected when DAGs are parsed, not when a run has failed and no one is notified."""
    (tmp_path / "notifiers_of_a_test.py").write_text(UNREADY)
    monkeypatch.syspath_prepend(tmp_path)
    spec_of(tmp_path, notifier, arguments)
    (tmp_path / "config" / "other.yaml").write_text(
        (tmp_path / "config" / "small.yaml").read_text().split("airflow:")[0].replace("name: small", "name: other")
    )
    dags = job_dags(tmp_path / "config")
    assert set(dags) == {"small__epoch", "small__broken", "other__epoch", "other__operate"}
    shown = str(dags["small__epoch"].doc_md)
    assert BROKEN_TAG in dags["small__epoch"].tags and why in shown
    wording.matches("broken_specs", shown, replace={r"TypeError: .*": "TypeError: {why}"})


@pytest.mark.parametrize(
    "arguments",
    [
        "{password: abc}",
        "{headers: {api_token: abc}}",
        "{url: 'https://me:abc@example.org'}",
        "{url: 'https://hooks.slack.com/services/T0/B0/x'}",
        "{to: '${env:TO}'}",
    ],
)
def test_notifier_arguments_contain_no_secrets(tmp_path: Path, arguments: str) -> None:
    with wording.raises(InvalidRequest) as refused:
        load_job(spec_of(tmp_path, SMTP, arguments))
    assert "abc" not in refused.value.message


def test_what_is_no_import_path_is_refused_by_lint(tmp_path: Path) -> None:
    with wording.raises(InvalidRequest) as refused:
        load_job(spec_of(tmp_path, "SmtpNotifier"))
    assert "airflow.on_failure[0].notifier" in refused.value.message


def test_a_task_group_has_no_notifiers_of_its_own(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    with (
        wording.raises(InvalidRequest),
        DAG("ours"),
    ):
        MilepostTaskGroup(job=str(spec))
