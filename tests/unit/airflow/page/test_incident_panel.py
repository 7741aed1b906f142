"""The overview of a job that stands still shows what failed, by which rule, from what input, and the acts that help."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from milepost.acts import QUARANTINE, ActContext
from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.page.frame.access import Rights
from milepost.errors import CheckpointError, QualityGateFailed, StoreUnavailable
from milepost.jobmaster import JobMaster, Session
from milepost.jobmaster.reports.history import rows_before
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import PageClient, page_client
from milepost_testkit.airflow.page_text import FIGURES, page_text
from milepost_testkit.jobs.sparkless.counted_job import CountedJob

JOB = "/jobs/small__epoch"
RULE = "      - {type: expect_column_values_to_be_between, column: k, max_value: 90}\n"
GATE = {
    "checkpointing:": f"quality:\n  - sink: seen\n    expectations:\n{RULE}"
    "      - {type: expect_column_values_to_not_match_regex, column: v, regex: script}\ncheckpointing:"
}
SECRET = "<script>secret</script>"


def client_of(job: CountedJob, patch: pytest.MonkeyPatch, role: str = "user") -> PageClient:
    return page_client(patch, *job_dags(job.small.folder / "config").values(), role=role)


def vetoed(folder: Path) -> CountedJob:
    """Two epochs are complete, the third is refused by both rules."""
    job = CountedJob.with_epochs(folder / "job", 2, GATE)
    job.small.land("bad.csv", f"k,v\n99,{SECRET}\n4,fine\n3,fine\n")
    with pytest.raises(QualityGateFailed):
        job.run()
    return job


def panel(page: str) -> str:
    return page_text(page, ".incident")


def test_a_veto_has_its_rules_their_past_the_input_and_the_acts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = client_of(vetoed(tmp_path), monkeypatch).get(JOB).text
    wording.matches("incident", panel(page), replace=FIGURES)
    incident = page.partition('class="incident"')[2].partition("</section>")[0]
    assert html.escape(SECRET) in incident and SECRET not in page
    assert "milepost " not in incident, "no command for a shell"
    assert "bad.csv" in incident and "max_value 90" in incident
    assert incident.count('<table class="data">') == 2, "columns of refused rows are not capitalized"
    assert 'data-about="small__operate"' in incident and "/rewind?job=small" in incident


def test_the_list_of_jobs_does_not_lead_to_a_resume_alone_after_a_veto(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would read the same rows again."""
    page = client_of(vetoed(tmp_path), monkeypatch).get("/jobs").text
    assert "<button>Resume a FAILED job</button>" in page and 'class="first"' not in page


def test_an_object_of_a_refused_epoch_is_quarantined_by_a_button_and_the_next_epoch_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = vetoed(tmp_path)
    job.land([3])
    client = client_of(job, monkeypatch)
    bodies = re.findall(r'data-about="small__operate" data-body="([^"]+)"', client.get(JOB).text)
    confs = [json.loads(html.unescape(body))["conf"] for body in bodies]
    assert {"what": "quarantine", "quarantine_source": "rows", "quarantine_object": "bad.csv"} in confs
    assert "Quarantine" not in panel(client.with_role("viewer").get(JOB).text)
    form = {"source": "rows", "object": "bad.csv"}
    approved, session = QUARANTINE.plan(job.master, form).shown, Session.cli()
    context = ActContext(job.master, session, form, session.decision("by a button"), approved)
    done = QUARANTINE.carry_out(context)
    assert (done.outcome, done.next_step) == ("quarantined", "milepost resume small")
    job.master.lifecycle.resume(session)
    job.run()
    assert job.consumed() == ["0001.csv", "0002.csv", "0003.csv"]
    job.assert_tables_equal_the_oracle()
    assert QUARANTINE.undo(approved, QUARANTINE.result(context, done)) == ("release", form)


LATEST = {
    "key: [k], aggregates: {rows: count(*)}": "key: [k], aggregates: {rows: count(*), v: max(v)}",
    "checkpointing:": "quality:\n  - sink: table\n    expectations:\n"
    "      - {type: expect_column_values_to_not_match_regex, column: v, regex: bad}\ncheckpointing:",
}


@pytest.mark.parametrize("table", ["format: parquet, path: ../lake/table", "format: delta, path: ../lake/table"])
def test_refused_rows_of_an_upsert_table_stand_next_to_what_readers_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """A key that the table has, and one that it does not have. A large table, or one that is away, is not searched."""
    job = CountedJob.with_epochs(tmp_path / "job", 2, {**LATEST, "format: parquet, path: ../lake/table": table})
    job.small.land("z.csv", f"k,v\n2,z-bad{SECRET}\n77,z-bad\n")
    with pytest.raises(QualityGateFailed):
        job.run()
    client = client_of(job, monkeypatch)
    rows = page_text(client.get(JOB).text, ".incident").splitlines()
    assert "k | v now | v refused" in rows
    assert f"2 | 2 | z-bad{SECRET}" in rows and "77 | no row | z-bad" in rows
    assert "v now" not in client.with_role("viewer").get(JOB).text
    with pytest.MonkeyPatch.context() as small:
        small.setattr(rows_before, "MAX_ROWS", 1)
        page = panel(client.get(JOB).text)
        assert "too large to search" in page and "v now" not in page and "z-bad" in page
    for file in (tmp_path / "job" / "lake" / "table").rglob("*.parquet"):
        file.unlink()
    page = panel(client.get(JOB).text)
    assert "is not shown: " in page and "v now" not in page and "z-bad" in page


def test_a_viewer_sees_neither_values_nor_bounds_that_he_may_not_see_nor_acts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(vetoed(tmp_path), monkeypatch, "viewer")
    page = client.get(JOB).text
    assert "refused" in panel(page) and "airflow.viewers_see_values" in panel(page) and "secret" not in page
    assert "max_value 90" in panel(page)
    assert "data-url" not in page and "/rewind?" not in panel(page)
    monkeypatch.setattr(Rights, "may_read_code", lambda self, dag_id: False)
    assert "max_value" not in client.get(JOB).text


def test_the_panel_disappears_once_an_epoch_completes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = vetoed(tmp_path)
    client = client_of(job, monkeypatch)
    job.edit(RULE, "")
    job.edit("regex: script", "regex: nothing")
    changed = panel(client_of(job, monkeypatch).get(JOB).text)
    assert "the spec has changed since" in changed.lower() and "the spec no longer has the rule" in changed
    job.master.lifecycle.resume()
    job.run()
    assert job.master.reports.incident() is None
    assert 'class="incident"' not in client.get(JOB).text


def test_a_failure_that_is_no_veto_has_no_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 1)
    job.small.land("bad.csv", "k,v\nnot a number,x\n")
    with pytest.raises(CheckpointError):
        job.run()
    incident = job.master.reports.incident()
    assert incident is not None and incident.rules == () and incident.read is None and incident.shows == 1
    wording.matches("incident", panel(client_of(job, monkeypatch).get(JOB).text), replace=FIGURES)


def test_a_lost_veto_and_a_store_that_answers_no_more_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = vetoed(tmp_path)
    client = client_of(job, monkeypatch)
    for veto in (tmp_path / "job" / "store").rglob("vetoes/*.json"):
        veto.unlink()
    page = client.get(JOB)
    assert page.status_code == 200
    wording.matches("incident", panel(page.text), replace=FIGURES)

    def is_away(self: object) -> None:
        raise StoreUnavailable("The store is away.")

    monkeypatch.setattr(type(JobMaster(job.small.loaded()).reports), "incident", is_away)
    page = client.get(JOB)
    assert page.status_code == 200
    wording.matches("incident", panel(page.text), replace=FIGURES)


@pytest.mark.deep
def test_a_head_that_cannot_be_read_leads_to_a_rollback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    next((tmp_path / "job" / "store").rglob("chk-*2/t*/_metadata")).write_bytes(b"{")
    page = client_of(job, monkeypatch).get(JOB).text
    incident = page.partition('class="incident"')[2].partition("</section>")[0]
    assert "rollback_to" in incident and "milepost " not in page_text(page, ".incident")
    wording.matches("incident", panel(page), replace=FIGURES)


@pytest.mark.deep
def test_a_healthy_job_has_no_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 1)
    monkeypatch.setattr(type(job.master.reports), "incident", None)
    assert 'class="incident"' not in client_of(job, monkeypatch).get(JOB).text
