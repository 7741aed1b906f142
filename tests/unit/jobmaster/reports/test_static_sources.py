"""`status`, `show`, the page and `lint` say of a static source what was pinned, how large it is, and how old."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.epoch.iso_times import iso_ms
from milepost.jobmaster import CheckpointDetails, CheckpointReport, Session
from milepost.jobmaster.reports.checkpoint.static_sources import PinnedObject
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import page_client
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

SPEC = """\
name: small
storage: ../store
sources:
  rows: {format: csv, path: ../landing/*.csv, schema: {k: int32, v: string}, settle: 0s}
  names: {format: csv, path: ../names/*.csv, schema: {id: int64, name: string}, settle: 0s, static: true}
operators:
  - {uid: named, kind: lookup, inputs: [rows, names], key: [{k: id}], how: left}
sinks:
  - {name: named, input: named, format: parquet, path: ../lake/named, mode: append}
"""
HOUR_S = 3600
LANDED = {**wording.SHORT_TIMES, **wording.SHORT_SIZES, **wording.LAG}


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    made = SparklessJob.create(tmp_path)
    (tmp_path / "config" / "small.yaml").write_text(SPEC)
    (tmp_path / "names").mkdir()
    return made


def name(job: SparklessJob, file: str, text: str, *, hours: float) -> Path:
    path = job.folder / "names" / file
    path.write_text(f"id,name\n{text}")
    then = time.time() - hours * HOUR_S
    os.utime(path, (then, then))
    return path


def run(job: SparklessJob, file: str) -> CheckpointDetails:
    job.land(file, "k,v\n1,a\n2,b\n")
    report = job.master.epochs.run(Session.cli(), SparklessRunner())
    assert isinstance(report, CheckpointReport)
    shown = job.master.reports.show(report.checkpoint_id)
    assert isinstance(shown, CheckpointDetails)
    return shown


def test_a_checkpoint_says_which_versions_were_pinned_and_which_one_has_their_copy(job: SparklessJob) -> None:
    old, new = name(job, "a.csv", "1,one\n", hours=5), name(job, "b.csv", "2,two\n3,three\n", hours=2)
    details = run(job, "a.csv").static_sources["names"]
    landed = [iso_ms(path.stat().st_mtime_ns // 1_000_000) for path in (old, new)]
    snapshot = job.context.metadata(job.context.head().state.head()).dimensions["names"]
    assert details.objects == tuple(
        PinnedObject(path.name, one.etag, path.stat().st_size, when)
        for path, one, when in zip((old, new), snapshot.objects, landed, strict=True)
    )
    assert (details.newest_object, details.rows, details.copied_by) == (landed[1], 3, 1)
    assert details.copy_bytes == (job.folder / "store" / "small" / snapshot.copy.key).stat().st_size
    assert details.bytes == snapshot.bytes
    assert run(job, "b.csv").static_sources["names"] == details, "the copy is still that of the first checkpoint"


def test_status_reports_the_age_of_a_static_source_and_whether_it_changed(job: SparklessJob) -> None:
    name(job, "a.csv", "1,one\n", hours=5)
    before = job.master.reports.status().static_sources["names"]
    assert (before.held, before.age_ms, before.changed, before.refused) == (None, None, False, None)
    details = run(job, "a.csv").static_sources["names"]
    health = job.master.reports.status().static_sources["names"]
    assert (health.held, health.changed, health.refused) == (details, False, None)
    assert health.age_ms is not None and 5 * HOUR_S * 1000 <= health.age_ms < 6 * HOUR_S * 1000
    name(job, "b.csv", "2,two\n", hours=1)
    changed = job.master.reports.status()
    assert changed.static_sources["names"].changed and changed.static_sources["names"].held == details
    assert changed.exit_code == 0, "a new version alone is no reason to look"
    assert run(job, "b.csv").static_sources["names"].copied_by == 2


def test_a_deleted_static_source_is_not_healthy_although_nothing_is_unread(job: SparklessJob) -> None:
    path = name(job, "a.csv", "1,one\n", hours=5)
    run(job, "a.csv")
    path.unlink()
    status = job.master.reports.status()
    said = "source names: no object matches ../names/*.csv, so nothing could be looked up."
    assert status.exit_code == 1 and status.next_step.startswith(said)
    assert status.static_sources["names"].held is not None


def test_status_show_and_lint_print_static_sources(job: SparklessJob) -> None:
    name(job, "a.csv", "1,one\n2,two\n", hours=5)
    spec = job.folder / "config" / "small.yaml"
    told = milepost("status", spec).stdout
    wording.matches("status", wording.paragraphs(told, "names"), replace=LANDED)
    run(job, "a.csv")
    told = milepost("status", spec).stdout
    wording.matches("status", wording.paragraphs(told, "names"), replace=LANDED)
    name(job, "a.csv", "1,uno\n", hours=4)
    told = milepost("status", spec).stdout
    wording.matches("status", wording.paragraphs(told, "names"), replace=LANDED)
    shown = milepost("show", spec).stdout
    wording.matches("show", wording.paragraphs(shown, "names"), replace=LANDED)
    document = json.loads(milepost("show", spec, "--json").stdout)["data"]["static_sources"]["names"]
    assert (document["rows"], document["objects"][0]["object"], document["copied_by"]) == (2, "a.csv", 1)
    (line,) = [one for one in milepost("lint", spec).stdout.splitlines() if one.startswith("names")]
    wording.matches("lint", " ".join(line.split()))


def test_the_page_of_a_checkpoint_has_its_input_and_its_lookup_tables(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    name(job, "a<b>.csv", "1,one\n", hours=5)
    run(job, "a.csv")
    client = page_client(monkeypatch, *job_dags(job.folder / "config").values())
    shown = client.get("/jobs/small__epoch/checkpoints/1").text
    _, _, section = shown.partition('id="sources">')
    section = re.sub(r'<details class="subtasks">.*?</details>', "", section.partition('<h2 id="sinks"')[0], flags=re.S)
    text = re.sub(r"(\s*<[^>]*>)+\s*", " | ", section)
    assert "a&lt;b&gt;.csv" in text
    wording.matches("checkpoint_page", text, replace=LANDED)
