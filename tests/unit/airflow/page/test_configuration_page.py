"""The configuration page shows every setting in force, and marks those that differ from their default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.page.frame.rendering import prose
from milepost.airflow.page.routes.configuration import sections_of
from milepost.jobspec.load.load import load_job
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import page_client
from milepost_testkit.airflow.page_text import page_text
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.specs.spec_edits import edit_spec

CONFIGURATION = "/jobs/small__epoch/configuration"

CHANGED = 'class="badge busy"'


def row_of(page: str, setting: str) -> str:
    found = re.search(rf"<tr><th scope=\"row\"><code>{re.escape(setting)}</code>.*?</tr>", page, re.DOTALL)
    assert found is not None, setting
    return found[0]


def test_a_setting_that_differs_from_its_default_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = SparklessJob.create(
        tmp_path, {"timeout: 10m": "timeout: 25m", "path: ../landing/*.csv": 'path: "../landing/<b>*.csv"'}
    )
    client = page_client(monkeypatch, *job_dags(job.folder / "config").values())
    page = client.get(CONFIGURATION).text
    timeout = row_of(page, "timeout")
    assert "<code>25m</code>" in timeout and CHANGED in timeout and "<code>10m</code>" in timeout
    last = row_of(page, "retained.last")
    assert "<code>1</code>" in last and "<code>10</code>" in last and CHANGED in last
    hourly = row_of(page, "retained.hourly")
    assert "<code>0</code>" in hourly and CHANGED not in hourly
    assert hourly.count('<td class="long"><code>') == 1, "it is the default"
    path = row_of(page, "path")
    assert "&lt;b&gt;" in path and "<b>" not in page and path.count('<td class="long"><code>') == 1, "it has no default"
    assert "<code>timeout</code>" in row_of(page, "epoch_budget")
    assert "`" not in page[: page.index('<pre class="card"')]
    for row in (timeout, last, hourly, path):
        wording.matches("page_configuration", page_text(row, "tr"))
    wording.matches("page_configuration", page_text(page, ".facts"))


def test_backticks_become_code_and_the_rest_is_escaped() -> None:
    assert prose("`a<b>` and <i> `c`, `d") == "<code>a&lt;b&gt;</code> and &lt;i&gt; <code>c</code>, `d"
    assert prose("") == "" and prose("it's") == "it&#39;s"


def head_made_with(folder: Path, patch: pytest.MonkeyPatch) -> str:
    page = page_client(patch, *job_dags(folder / "config").values()).get(CONFIGURATION).text
    *_, made_with, checkpoint = page_text(page, "dd").splitlines()
    assert "1" in checkpoint
    return made_with


@pytest.mark.deep
def test_it_says_whether_the_head_was_made_with_this_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.epoch()
    before = head_made_with(tmp_path, monkeypatch)
    spec = tmp_path / "config" / "small.yaml"
    edit_spec(spec, {"timeout: 10m": "timeout: 11m"})
    after = head_made_with(tmp_path, monkeypatch)
    assert before != after
    wording.matches("page_configuration", [before, after])


def test_every_setting_of_a_spec_with_all_keys_has_a_meaning() -> None:
    spec = load_job(REPOSITORY / "config" / "examples" / "all_keys.yaml").spec
    sections = list(sections_of(spec))
    assert {section.title for section in sections} >= {"Checkpointing", "Schedule", "Spark", "Airflow", "Store"}
    without = [f"{section.title} {one.name}" for section in sections for one in section.settings if not one.meaning]
    assert not without
