"""`expect_every`: every report shows a path that matches nothing, and a feed that stopped."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.jobmaster import CheckpointDetails, NothingToDo, Session
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import page_client
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

EVERY = {"settle: 0s": "settle: 0s\n    expect_every: 1h", "last: 1": "last: 20"}
OTHER = {
    "operators:\n": "  other:\n    format: csv\n    path: ../other/*.csv\n    schema: {k: int64}\n    settle: 0s\n"
    "operators:\n",
    "sinks:\n": "sinks:\n  - {name: others, input: other, format: parquet, path: ../lake/other, mode: append}\n",
}


def made(folder: Path, edit: Mapping[str, str] | None = None) -> SparklessJob:
    (folder / "other").mkdir(parents=True)
    return SparklessJob.create(folder, EVERY | OTHER | (edit or {}))


def landed(path: Path, hours_ago: float) -> Path:
    then = time.time() - hours_ago * 3600
    os.utime(path, (then, then))
    return path


def run(job: SparklessJob) -> CheckpointDetails | NothingToDo:
    found = job.master.epochs.run(Session.cli(), SparklessRunner())
    assert isinstance(found, CheckpointDetails | NothingToDo)
    return found


def said_of_the_path(job: SparklessJob) -> list[str]:
    """Return the sentences of the job's page that name the path of its source."""
    with pytest.MonkeyPatch.context() as patch:
        page = page_client(patch, *job_dags(job.folder / "config").values()).get("/jobs/small__epoch").text
    texts = (re.sub("<td>[^<]*</td>|<[^>]+>", " ", line) for line in page.splitlines())
    return [" ".join(text.split()) for text in texts if "../landing/*.csv" in text]


def test_a_path_that_never_named_an_object_is_seen(tmp_path: Path) -> None:
    job = made(tmp_path)
    status = job.master.reports.status()
    assert status.exit_code == 6 and not status.healthy
    wording.matches("status", status.next_step)
    assert status.sources["other"].overdue is None, "nothing is expected of it"
    answer = run(job)
    assert isinstance(answer, NothingToDo)
    wording.matches("answers", answer.message)


@pytest.mark.long
def test_a_feed_that_stopped_is_seen_from_when_it_is_expected_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = made(tmp_path)
    path = landed(job.land("a.csv"), 0.9)
    run(job)
    assert job.master.reports.status().exit_code == 0
    assert not said_of_the_path(job)
    landed(path, 0.9)  # the very version that was read
    path.unlink()  # cleared away: what was consumed counts
    assert job.master.reports.status().exit_code == 0
    real = time.time
    monkeypatch.setattr("milepost.storage.local.store.LocalStore.clock_ms", lambda _: round((real() + 720) * 1000))
    status = job.master.reports.status()
    assert status.exit_code == 6
    assert status.since is not None and status.since.time is not None, "the hour was over six minutes ago"
    assert 300_000 < (status.since.age_ms or 0) < 2_000_000
    wording.matches("status", status.next_step)
    wording.matches("page", said_of_the_path(job), replace=wording.TIMES | {r"[\d.]+ m?s ago": "{age} ago"})
    command = milepost("status", str(job.folder / "config" / "small.yaml"))
    assert command.exit_code == 6
    assert "1h" in command.stdout
    landed(job.land("b.csv"), 0.1)
    assert job.master.reports.status().exit_code == 0


def test_an_epoch_that_other_sources_go_on_with_says_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = made(tmp_path)
    landed(job.land("a.csv"), 2)
    first = run(job)
    assert isinstance(first, CheckpointDetails) and first.sources["rows"].overdue, "its newest object is two hours old"
    (tmp_path / "other" / "a.csv").write_text("k\n1\n")
    with caplog.at_level(logging.WARNING):
        second = run(job)
    assert isinstance(second, CheckpointDetails) and second.sources["rows"].overdue
    assert not second.sources["other"].overdue
    wording.matches("log", [line for line in caplog.messages if "source rows" in line], replace=wording.TIMES)
    shown = milepost("show", str(job.folder / "config" / "small.yaml"))
    assert "expect_every" in shown.stdout


@pytest.mark.deep
@pytest.mark.parametrize(("every", "exit_code"), [("1h", 6), ("3h", 0), ("null", 0)])
def test_how_long_may_pass_is_what_the_key_says(tmp_path: Path, every: str, exit_code: int) -> None:
    job = made(tmp_path, {"settle: 0s": f"settle: 0s\n    expect_every: {every}"})
    landed(job.land("a.csv"), 2)
    run(job)
    assert job.master.reports.status().exit_code == exit_code
