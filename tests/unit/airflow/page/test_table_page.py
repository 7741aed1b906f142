"""The page of a table shows the same document as `milepost table`, to whom may see it, whatever the table contains."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from milepost.acts import WHY, row_values
from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.page.frame.access import Rights
from milepost.airflow.page.jobs import job_reader
from milepost.operators.base import BAD
from milepost.views import sampled_rows, table_view
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import PageClient, page_client
from milepost_testkit.airflow.page_text import FIGURES, page_text
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.duckdb_tracer import duckdb_tracer
from milepost_testkit.specs.spec_edits import edit_spec
from milepost_testkit.stores.job_stores import hook_stores

TABLES = "/jobs/small__epoch/tables"
GATE = {
    "checkpointing:": "quality:\n  - sink: table\n    expectations:\n"
    "      - {type: expect_column_values_to_be_between, column: k, max_value: 90}\n"
    "      - {type: expect_column_values_to_be_between, column: k, min_value: 0, severity: warning}\n"
    "checkpointing:"
}


def client_of(job: SparklessJob, patch: pytest.MonkeyPatch, role: str = "user") -> PageClient:
    return page_client(patch, *job_dags(job.folder / "config").values(), role=role)


def test_the_page_has_size_columns_rules_epochs_files_and_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 3, GATE).small
    answer = client_of(job, monkeypatch).get(f"{TABLES}/table")
    assert answer.status_code == 200
    report = job.master.reports.table("table", sample=True)
    assert [epoch.rows for epoch in report.epochs] == [3, 3, 3]
    assert [[result.met for result in rule.results] for rule in report.rules] == [[True] * 3, [False] * 3]
    assert answer.text.count('class="chart"') == 3, "there is no event time"
    assert "FROM read_parquet(&#39;table.parquet&#39;)" in answer.text
    main = page_text(answer.text, "#main")
    for fact in ("at most 9 rows", "checkpoint 3", "upsert | key k", "format: parquet, path: ../lake/table"):
        assert fact.replace(" | ", "\n") in main
    for row in ("k | int64 | yes", "max_value 90 | critical | met | 3 of 3 | 0", "warning | not met | 0 of 3 | 1"):
        assert row in main
    assert report.sample is not None and report.sample.rows
    assert " | ".join(str(value) for value in report.sample.rows[0]) in main
    assert answer.text.count('<table class="data">') == 1, "columns of the sample are not capitalized"
    wording.matches("page_table", page_text(answer.text, "h2", "summary"), replace=FIGURES)


def test_a_table_without_rows_yet_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.create(tmp_path / "job", GATE).small
    answer = client_of(job, monkeypatch).get(f"{TABLES}/table")
    assert answer.status_code == 200
    wording.matches("page_table", page_text(answer.text, "#main"))


def test_an_unknown_table_and_a_removed_one_are_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = CountedJob.with_epochs(tmp_path / "job", 1)
    edit_spec(
        counted.spec_path, {"  - {name: seen, input: unique, format: parquet, path: ../lake/seen, mode: append}\n": ""}
    )
    client = client_of(counted.small, monkeypatch)
    for name in ("nothing", "seen", "a%2Fb", "%3Cb%3E"):
        answer = client.get(f"{TABLES}/{name}")
        assert answer.status_code == 404 and "<b>" not in answer.text
        if name != "a%2Fb":  # no route has such an address
            wording.matches("page_problem", page_text(answer.text, ".banner"))


def test_hostile_and_long_cells_are_escaped_and_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = CountedJob.create(tmp_path / "job")
    hostile = "<script>alert(1)</script>\x1b[2J"
    counted.small.land("a.csv", f"k,v\n1,{hostile}\n2,{'x' * 5_000}\n")
    counted.run()
    page = client_of(counted.small, monkeypatch).get(f"{TABLES}/seen").text
    assert html.escape("<script>alert(1)</script>") in page and "<script>alert" not in page and "\x1b" not in page
    assert "x" * 199 + "…" in page and "x" * 200 not in page and "1 value cut" in page


def test_a_user_who_may_not_see_values_causes_no_read_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = CountedJob.create(tmp_path / "job")
    counted.small.land("a.csv", "k,v\n1,secret-value\n")
    counted.run()
    shutil.rmtree(tmp_path / "job" / "lake" / "seen")
    page = client_of(counted.small, monkeypatch, "viewer").get(f"{TABLES}/seen").text
    assert "airflow.viewers_see_values" in page and "secret-value" not in page and "cannot be read" not in page


def test_the_bounds_of_rules_need_the_permission_of_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 1, GATE).small
    client = client_of(job, monkeypatch)
    assert "max_value 90" in client.get(f"{TABLES}/table").text
    monkeypatch.setattr(Rights, "may_read_code", lambda self, dag_id: False)
    page = client.get(f"{TABLES}/table").text
    assert "max_value" not in page and "expect_column_values_to_be_between(k)" in page
    (document,) = [client.with_role("viewer").get(f"{TABLES}/table.json").json()["data"]]
    assert "sample" not in document and [rule["bounds"] for rule in document["rules"]] == [None, None]


def test_a_table_whose_store_is_away_is_named_within_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that the job's own store has, and of a lost file why it is not shown."""
    counted, answers = CountedJob.with_epochs(tmp_path / "job", 2), Event()
    client = client_of(counted.small, monkeypatch)
    monkeypatch.setattr(job_reader, "TIMEOUT_S", 1.0)

    def hold(operation: str, key: str) -> None:
        assert not key.startswith("_milepost/") or answers.wait(60)

    with pytest.MonkeyPatch.context() as held:
        hook_stores(held, before=hold)
        page = client.get(f"{TABLES}/seen")
        answers.set()
    assert page.status_code == 200 and "6 rows" in page.text
    wording.matches("page_table", page_text(page.text, ".banner"))
    for file in (tmp_path / "job" / "lake" / "seen").rglob("*.parquet"):
        file.unlink()
    page = client.get(f"{TABLES}/seen")
    assert page.status_code == 200 and "6 rows" in page.text
    wording.matches("page_table", page_text(page.text, ".banner"))


def test_the_asset_is_linked_once_airflow_knows_it_for_whom_may_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.models.asset import AssetModel
    from airflow.sdk import Asset
    from airflow.utils.session import create_session

    from milepost.airflow.provider.asset_uris import sink_assets

    job = CountedJob.with_epochs(tmp_path / "job", 1).small
    client = client_of(job, monkeypatch)
    assert "/assets/" not in client.get(f"{TABLES}/seen").text
    with create_session() as session:
        asset = AssetModel.from_serialized(Asset(sink_assets(job.loaded())["seen"]))
        session.add(asset)
        session.flush()
        address = f'href="/assets/{asset.id}"'
    assert address in client.get(f"{TABLES}/seen").text
    monkeypatch.setattr(Rights, "may_read_asset", lambda self, asset_id: False)
    assert address not in client.get(f"{TABLES}/seen").text


def test_each_row_of_the_sample_has_the_command_that_traces_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 3).small
    client = client_of(job, monkeypatch)
    rows = sampled_rows(job.master.reports.table("seen", sample=True))
    page = client.get(f"{TABLES}/seen").text
    assert len(rows) == 3 and html.escape(f"milepost why small seen --at 3 {rows[0]}", quote=False) in page
    assert "milepost why" not in client.with_role("viewer").get(f"{TABLES}/seen").text
    for row in rows:
        origin = job.master.tracing.origin("seen", row_values(shlex.split(row)), duckdb_tracer())
        assert origin.is_proven and [item.count for item in origin.inputs] == [1]
    (of_a_key, *_) = sampled_rows(job.master.reports.table("table", sample=True))
    assert of_a_key.count("=") == 1 and of_a_key.startswith("k=")


def test_each_row_of_the_sample_has_a_button_for_users_who_may_operate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 1).small
    client = client_of(job, monkeypatch)
    (row,) = sampled_rows(job.master.reports.table("seen", sample=True))
    page = client.get(f"{TABLES}/seen").text
    conf = {"what": WHY.name, "why_sink": "seen", "why_row": row, "why_at": 1}
    (body,) = re.findall(r'data-body="([^"]+)"', page)
    assert json.loads(html.unescape(body)) == {"logical_date": None, "conf": conf}
    monkeypatch.setattr(Rights, "may_trigger", lambda self, dag_id: dag_id == "small__epoch")
    assert "data-body" not in client.get(f"{TABLES}/seen").text


def test_rows_that_cannot_be_traced_have_no_words(tmp_path: Path) -> None:
    report = CountedJob.with_epochs(tmp_path / "job", 1).master.reports.table("seen", sample=True)
    assert sampled_rows(report)
    assert not sampled_rows(replace(report, mode="changelog"))
    assert not sampled_rows(replace(report, input=f"orders{BAD}"))


def test_values_of_a_traced_row_are_quoted_and_those_that_were_cut_are_left_out(tmp_path: Path) -> None:
    report = CountedJob.with_epochs(tmp_path / "job", 1).master.reports.table("seen", sample=True)
    assert report.sample is not None
    rows = (("a b", None), ("null", "it's"), ("cut…", "'x'"), ("cut…", "two\nlines"))
    sample = replace(report.sample, columns=("k", "v"), rows=rows)
    assert sampled_rows(replace(report, sample=sample)) == [
        "'k=a b' v=null",
        """'k='"'"'null'"'"'' 'v=it'"'"'s'""",
        """'v='"'"''"'"'x'"'"''"'"''""",
    ]
    named = replace(report, sample=replace(sample, columns=("-k", "a=b"), rows=(("x", "y"),)))
    assert sampled_rows(named) == ["-k=x"], "a name with = could not be told from its value"
    commands = [section.source for section in table_view(named).sections if section.source]
    assert "milepost why small seen --at 1 -- -k=x" in commands
    assert not sampled_rows(replace(named, key=("-k", "a=b")))
    keyed = replace(report, sample=sample, key=("k", "v"))
    assert sampled_rows(keyed) == sampled_rows(replace(report, sample=sample))[:2], "part of a key may name many rows"
