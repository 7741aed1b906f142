"""The last failed landing of a source is shown until a landing succeeds, and no landing depends on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from milepost.codec import to_json
from milepost.errors import CommitConflict, InvalidRequest, SourceUnreachable
from milepost.jobmaster import Condition
from milepost.jobmaster.job.landing_failures import last_failure, store_failure
from milepost.jobmaster.landing.source_probe import probe_landed_sources
from milepost.jobmaster.metrics.samples import samples_of
from milepost.protocol.landed.failures import HINT_CHARACTERS, MESSAGE_CHARACTERS, LandingFailure
from milepost.protocol.records.layout import landing_failure_key
from milepost.spark import driver
from milepost.storage.log import SourceLog
from milepost_testkit.commands.milepost_cli import Outcome, milepost
from milepost_testkit.jobs.sparkless.landed_job import LandedJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.faulty_store import Effect, Fault
from milepost_testkit.stores.job_stores import break_store

KEY = landing_failure_key("feed")


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    job = LandedJob.create(tmp_path / "job")
    job.land_and_run(1, 2)
    return job


def take_away(job: LandedJob) -> None:
    (job.folder / "feed.json").rename(job.folder / "away.json")


def bring_back(job: LandedJob) -> None:
    (job.folder / "away.json").rename(job.folder / "feed.json")


def shown(job: LandedJob) -> LandingFailure | None:
    sources = job.master.reports.status().sources
    assert sources is not None and sources["feed"].log is not None
    return sources["feed"].log.failed


def cli(job: LandedJob, command: str, *words: str) -> Outcome:
    return milepost(command, job.folder / "config" / "landed.yaml", *words)


def stored(job: LandedJob) -> bool:
    return any(stat.key == KEY for stat in job.context.store.list("landed/"))


def test_status_metrics_and_doctor_report_the_failure_and_its_next_step(job: LandedJob) -> None:
    assert shown(job) is None and job.master.reports.status().healthy
    take_away(job)
    assert cli(job, "land").exit_code == SourceUnreachable.exit_code
    status = job.master.reports.status()
    assert (status.condition, status.exit_code) == (Condition.LANDING_FAILED, 1)
    assert "source feed: the last landing failed at" in status.next_step
    failed = shown(job)
    assert failed is not None and (failed.error, failed.runbook) == ("SourceUnreachable", "source-unreachable")
    assert "FileNotFoundError" in failed.message and failed.may_pass
    outcome = cli(job, "status")
    assert outcome.exit_code == 1 and "SourceUnreachable: source feed" in " ".join(outcome.stdout.split())
    document: dict[str, Any] = to_json(status)
    samples = [one for one in samples_of("landed", {"status": document}) if one.metric.name == "lastLandingFailure"]
    assert [dict(one.labels) for one in samples] == [{"job": "landed", "source": "feed", "error": "SourceUnreachable"}]
    bring_back(job)
    (probed,) = probe_landed_sources(job.context)
    assert probed.ok and probed.suspicious and "the last landing failed at" in probed.detail


@pytest.mark.deep
@pytest.mark.parametrize("keys", [(), (3,)], ids=["nothing new", "new rows"])
def test_a_landing_that_succeeds_ends_the_report(job: LandedJob, keys: tuple[int, ...]) -> None:
    take_away(job)
    job.land()
    bring_back(job)
    job.produce(*keys)
    assert not job.land().failed
    assert shown(job) is None and job.master.reports.status().healthy
    assert stored(job) is bool(keys), "a newer record supersedes it, so it need not be deleted"
    assert job.master.reports.fsck().foreign == ()


def test_the_first_landing_can_fail_and_be_reported(tmp_path: Path) -> None:
    job = LandedJob.create(tmp_path / "job")
    take_away(job)
    job.land()
    status = job.master.reports.status()
    assert (status.condition, status.exit_code) == (Condition.LANDING_FAILED, 1)
    bring_back(job)
    job.produce(1)
    job.land()
    assert shown(job) is None


@pytest.mark.deep
def test_a_failure_that_no_retry_passes_leads_to_the_command_of_its_hint(job: LandedJob) -> None:
    job.produce(3, 4)
    job.expire(1)
    job.land()
    status = job.master.reports.status()
    assert "milepost land landed --source feed --resume-from earliest" in status.next_step
    job.approve_gap()
    assert shown(job) is None, "the gap is a newer record"


def test_a_lost_race_is_no_failure(job: LandedJob) -> None:
    store_failure(SourceLog(job.context.store, "feed"), CommitConflict("another landing appended record 3"))
    assert not stored(job)


def test_of_an_unexpected_error_only_the_class_is_stored(job: LandedJob) -> None:
    store_failure(SourceLog(job.context.store, "feed"), ZeroDivisionError("password=hunter2"))
    failed = shown(job)
    assert failed is not None and (failed.error, failed.runbook) == ("ZeroDivisionError", "unexpected-error")
    assert b"hunter2" not in job.context.store.get(KEY)


def test_long_texts_are_shortened(job: LandedJob) -> None:
    store_failure(SourceLog(job.context.store, "feed"), InvalidRequest("x" * 100_000, hint="y" * 100_000))
    failed = shown(job)
    assert failed is not None and (len(failed.message), len(failed.hint)) == (MESSAGE_CHARACTERS, HINT_CHARACTERS)


def test_a_damaged_failure_hides_nothing_else(job: LandedJob) -> None:
    job.context.store.put(KEY, b"{")
    assert job.master.reports.status().healthy
    assert job.master.reports.fsck().exit_code == 0


def test_a_failure_that_cannot_be_stored_hides_nothing(job: LandedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    take_away(job)
    refused = Fault(lambda operation, key: key.endswith("failure.json"), Effect.UNAVAILABLE, times=10_000)
    break_store(monkeypatch, job.context.store.config.url, refused)
    (failed,) = job.land().failed
    assert failed.error == SourceUnreachable.__name__
    bring_back(job)
    assert not job.land().failed, "a success does not depend on it either"


def test_a_failure_before_a_newer_record_of_a_concurrent_landing_is_not_reported(job: LandedJob) -> None:
    take_away(job)
    job.land()
    body = job.context.store.get(KEY)
    bring_back(job)
    job.produce(3)
    job.land()
    job.context.store.put(KEY, body)
    log = SourceLog(job.context.store, "feed")
    newest = log.newest()
    assert newest is not None and last_failure(log, newest.record) is None


def test_run_with_json_is_not_ok_if_the_landing_failed(job: LandedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "spark_runner", SparklessRunner)
    job.produce(3)
    job.land()
    take_away(job)
    outcome = cli(job, "run", "--json")
    document = json.loads(outcome.stdout)
    assert (outcome.exit_code, document["ok"]) == (SourceUnreachable.exit_code, False)
    assert document["error"]["class"] == "SourceUnreachable" and document["error"]["exit_code"] == outcome.exit_code
    assert document["error"]["details"] == {"sources": ["feed"]}
    assert document["data"]["rows_in"] == 1, "the epoch ran"


@pytest.mark.deep
def test_land_exits_with_the_code_of_the_error(job: LandedJob) -> None:
    feeds = job.folder / "config" / "feeds.py"
    feeds.write_text(feeds.read_text().replace("yield (state", "yield ('not a number' or state"))
    job.produce(3)
    (failed,) = job.land().failed
    assert failed.error == InvalidRequest.__name__
    assert cli(job, "land").exit_code == InvalidRequest.exit_code
    assert job.master.reports.status().exit_code == 1
