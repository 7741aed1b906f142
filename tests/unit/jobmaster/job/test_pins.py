"""A reader of an old checkpoint pins it (I8)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from milepost.errors import EnvironmentUnusable, NotFound, StoreUnavailable
from milepost.jobmaster import Session
from milepost.jobmaster.job.pins import HOLD_MS, pin_for_read
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.stores.faulty_store import Effect, Fault, at
from milepost_testkit.stores.job_stores import break_store


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    """Checkpoints 1 and 2 are retained under a policy of one, because nothing was subsumed yet."""
    job = SparklessJob.create(tmp_path)
    for name in ("a.csv", "b.csv"):
        job.land(name)
        job.epoch()
    return job


def pins(job: SparklessJob) -> list[int]:
    return [int(pin.checkpoint_id) for pin in job.context.head().state.pins]


def retained_after_an_epoch(job: SparklessJob, landed: str) -> list[int]:
    session = Session.cli()
    job.land(landed)
    completed = job.complete(session, job.trigger(session))
    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    job.master.epochs.subsume(session)
    return [int(checkpoint.checkpoint_id) for checkpoint in job.context.head().state.checkpoints]


def test_an_epoch_that_subsumes_leaves_files_that_are_being_read(job: SparklessJob) -> None:
    with pin_for_read(job.context, 1):
        assert pins(job) == [1]
        assert retained_after_an_epoch(job, "c.csv") == [1, 3]
    assert pins(job) == []
    assert retained_after_an_epoch(job, "d.csv") == [4]


@pytest.mark.deep
@pytest.mark.parametrize("read", ["read", "verify"])
def test_reading_an_old_checkpoint_pins_and_unpins_it(job: SparklessJob, read: str) -> None:
    if read == "read":
        assert job.master.reports.read("table", 1).num_rows == 1
    else:
        assert job.master.reports.verify(1).checkpoints == (1,)
    assert [event["event"] for event in job.master.reports.history(2)] == ["CheckpointUnpinned", "CheckpointPinned"]
    assert pins(job) == []


def test_reading_the_head_writes_nothing(job: SparklessJob) -> None:
    version = job.context.head().version
    job.master.reports.read("table")
    job.master.reports.read("table", 2)
    job.master.reports.verify(2)
    job.master.reports.verify()
    assert job.context.head().version == version


def test_a_pin_is_removed_if_the_reader_fails_or_requests_something_unknown(job: SparklessJob) -> None:
    with wording.raises(NotFound):
        job.master.reports.state("nobody", 1)
    assert pins(job) == []
    with wording.raises(NotFound):
        job.master.reports.read("table", 9)


def test_a_reader_that_died_holds_its_checkpoint_for_a_limited_time(job: SparklessJob) -> None:
    with pytest.raises(KeyboardInterrupt), pin_for_read(job.context, 1):
        (pin,) = job.context.head().state.pins
        assert abs(pin.until_ms - job.context.store.clock_ms() - HOLD_MS) < 60_000
        raise KeyboardInterrupt
    assert pins(job) == []


def test_a_reader_without_write_access_reads_without_a_pin_and_is_warned(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    denied = EnvironmentUnusable("denied access to PutObject")
    url = job.context.store_config.url
    break_store(monkeypatch, url, Fault(at("create"), Effect.UNAVAILABLE, times=99, error=denied))
    with caplog.at_level(logging.WARNING):
        assert job.master.reports.read("table", 1).num_rows == 1
    wording.matches("log", caplog.messages)


def test_a_read_succeeds_even_if_its_pin_cannot_be_removed(
    job: SparklessJob, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = job.context.store_config.url
    gone = StoreUnavailable("no answer")
    break_store(monkeypatch, url, Fault(at("create"), Effect.UNAVAILABLE, skip=1, times=99, error=gone))
    with caplog.at_level(logging.WARNING):
        assert job.master.reports.read("table", 1).num_rows == 1
    wording.matches("log", caplog.messages)
    assert pins(job) == [1]
