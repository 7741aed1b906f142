"""A notifier of Airflow's own reports a failed run, in a real Airflow: from its DAG processor, with a Connection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milepost.airflow.page_urls import form_url
from milepost.jobmaster import Session
from milepost_testkit.airflow.airflow_instance import AirflowInstance
from milepost_testkit.airflow.e2e_job import CARRIERS, E2eJob, has_line
from milepost_testkit.airflow.form_run import FormRun
from milepost_testkit.servers.mail_server import mail_server

TOLD = CARRIERS.replace(
    "airflow: {{",
    """airflow: {{on_failure: [{{notifier: airflow.providers.smtp.notifications.smtp.SmtpNotifier,
  arguments: {{smtp_conn_id: mail, from_email: data@example.org, to: oncall@example.org,
    subject: "{{{{ milepost.dag_id }}}}: {{{{ milepost.reason }}}}",
    html_content: "{{{{ milepost.detail }}}} | {{{{ milepost.step }}}} | {{{{ milepost.form_url }}}}"}}}}], """,
)


def told(airflow: AirflowInstance, request: pytest.FixtureRequest) -> Iterator[E2eJob | None]:
    job = airflow.write_job("told", spec=TOLD)
    job.land("a", {"AA": 1})
    job.master.triggers.trigger(Session.cli())
    job.master.savepoints.cancel()
    yield None
    job.unpause()
    yield job


@pytest.mark.scenario(begins=told)
def test_a_failed_epoch_and_a_failed_act_are_mailed_with_the_way_on(airflow: AirflowInstance, scenario: E2eJob) -> None:
    job = scenario
    with mail_server() as server:
        mail = {"connection_id": "mail", "conn_type": "smtp", "host": "127.0.0.1", "port": server.port}
        airflow.rest.create("/connections", mail | {"extra": '{"disable_ssl": true, "disable_tls": true}'})

        act_run = FormRun(airflow, "told__operate", what="rollback", rollback_to="99")
        run_id, state = job.run()

        states = job.states(run_id)
        assert (state, states["trigger_checkpoint"], states["run_epoch"]) == ("failed", "failed", "upstream_failed")
        assert act_run.wait() == "failed"
        airflow.until(lambda: len(server.mails) == 2, "the mails about the epoch and the act")
    epoch, act = sorted(server.mails, key=lambda mail: mail["Subject"])
    assert epoch["Subject"].startswith("told__epoch: ") and act["Subject"].startswith("told__operate: ")
    body = epoch.get_payload()[0].get_payload(decode=True).decode()
    assert "CANCELED" in body and "told__operate: start" in body
    assert "/milepost/jobs/told__operate/form?job=told&what=start" in body
    text = job.log(run_id, "trigger_checkpoint")
    form = f"{airflow.stack.airflow_url}{form_url('told', 'start')}"
    assert has_line(text, "told__operate: start", form, "milepost start told")
    assert job.statuses() == [(1, "aborted")]
    note = airflow.rest.run(job.dag_id, run_id)["note"]
    assert note.startswith("milepost: ") and "CANCELED" in note
