"""`milepost doctor` connects to each landed source, says how far its log is behind, and changes nothing."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from milepost.jobmaster.landing.source_probe import ProbedSource, probe_landed_sources
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.landed_job import LandedJob


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    return LandedJob.create(tmp_path / "job")


def probe(job: LandedJob, seconds: float = 20.0) -> ProbedSource:
    (probed,) = probe_landed_sources(job.context, seconds)
    return probed


def test_a_source_that_was_never_landed_is_probed_and_nothing_is_written(job: LandedJob) -> None:
    job.produce(1, 2)
    probed = probe(job)
    assert probed.ok
    assert "nothing was landed yet" in probed.detail
    assert '{"next": 0} to {"next": 2}' in probed.detail
    assert job.left == 2
    assert not (job.folder / "store").exists()


def test_a_source_says_how_far_its_log_is_behind(job: LandedJob) -> None:
    job.produce(1, 2)
    job.land()
    assert "landed 2 rows" in probe(job).detail and 'nothing new after position {"next": 2}' in probe(job).detail
    job.produce(3)
    assert '{"next": 2} to {"next": 3}' in probe(job).detail
    assert job.left == 1, "nothing was landed or acknowledged"


def test_a_failure_names_its_error_and_what_to_do(job: LandedJob) -> None:
    (job.folder / "feed.json").rename(job.folder / "elsewhere.json")
    probed = probe(job)
    assert not probed.ok
    assert probed.detail.startswith("SourceUnreachable: source feed:")
    assert "FileNotFoundError" in probed.detail


def test_rows_that_expired_are_found_before_a_landing_fails(job: LandedJob) -> None:
    job.produce(1, 2)
    job.land()
    job.produce(3, 4)
    job.expire(1)
    detail = probe(job).detail
    assert detail.startswith("PositionExpired: source feed: the external system no longer has what follows")
    assert "milepost land landed --source feed --resume-from earliest" in detail


def test_the_log_of_another_system_is_found_before_a_landing_fails(job: LandedJob) -> None:
    job.land()
    feeds = job.folder / "config" / "feeds.py"
    feeds.write_text(feeds.read_text() + "\n\nclass Other(Feed):\n    pass\n")
    spec = job.folder / "config" / "landed.yaml"
    spec.write_text(spec.read_text().replace("feeds:Feed", "feeds:Other"))
    assert probe(job).detail.startswith("SourceReplaced: source feed:")


def test_a_source_that_hangs_does_not_keep_doctor(job: LandedJob) -> None:
    feeds = job.folder / "config" / "feeds.py"
    hang = "    def initialOffset(self):\n        import threading\n\n        threading.Event().wait()\n"
    feeds.write_text(feeds.read_text().replace("    def initialOffset(self):\n", hang, 1))
    began = time.monotonic()
    probed = probe(job, 0.2)
    assert not probed.ok and "no answer within 0.2 s" in probed.detail
    assert time.monotonic() - began < 8


def test_the_command_has_one_check_per_source(job: LandedJob) -> None:
    outcome = milepost("doctor", job.folder / "config" / "landed.yaml", "--json")
    checks = {check["check"]: check for check in json.loads(outcome.stdout)["data"]["checks"]}
    assert checks["source feed"]["ok"] and "is opened" in checks["source feed"]["detail"]
