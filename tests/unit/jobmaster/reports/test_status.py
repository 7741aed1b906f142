"""`status` reports lag, waiting and stuck work, with the command to run next."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.epoch.iso_times import iso_ms
from milepost.epoch.metadata import CheckpointMetadata
from milepost.errors import InvalidRequest
from milepost.jobmaster import Condition, JobMaster, Session
from milepost.jobmaster.reports.health.sources import stale
from milepost.jobspec.load.load import load_job
from milepost.protocol.failure.abort_reasons import reason_for
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.runbook.addresses import address, page_of
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

HOUR_S = 3600
HOUR_MS = 1000 * HOUR_S


HOUR_US = 1000 * HOUR_MS
TIMED = {"{k: int64, v: string}": '{k: int64, v: string, t: "timestamp[us, UTC]"}\n    event_time: t'}


def age(path: Path, hours: int) -> Path:
    then = time.time() - hours * HOUR_S
    os.utime(path, (then, then))
    return path


def test_the_lag_is_that_of_the_oldest_new_object_also_when_the_limits_leave_it_for_later(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    age(job.land("a.csv"), 1)
    age(job.land("z.csv"), 9)
    status = job.master.reports.status(5 * HOUR_MS)
    assert 9 * HOUR_MS <= status.lag_ms < 10 * HOUR_MS
    assert (status.unread_objects, status.exit_code) == (2, 6)


def test_a_job_is_not_healthy_before_its_first_success(tmp_path: Path) -> None:
    """It is unknown whether it can succeed."""
    job = SparklessJob.create(tmp_path)
    status = job.master.reports.status()
    assert (status.exit_code, status.healthy) == (1, False)
    wording.matches("status", status.sources["rows"].no_match)
    job.land("a.csv")
    status = job.master.reports.status()
    assert status.exit_code == 1
    wording.matches("status", status.next_step)
    job.epoch()
    assert job.master.reports.status().exit_code == 0


def test_a_source_that_never_had_an_object_is_the_next_step_and_one_that_was_emptied_is_not(tmp_path: Path) -> None:
    """Its path may be mistyped, which nothing else would report. Objects that were read may be moved away."""
    job = SparklessJob.create(tmp_path)
    status = job.master.reports.status()
    assert status.sources["rows"].never_any
    wording.matches("status", status.next_step)
    path = job.land("a.csv")
    job.epoch()
    wording.matches("status", job.master.reports.status().next_step)
    path.unlink()
    status = job.master.reports.status()
    assert not status.sources["rows"].never_any
    wording.matches("status", status.next_step)
    assert status.sources["rows"].no_match is not None


@pytest.mark.deep
def test_a_path_that_never_matched_is_not_healthy_although_an_epoch_completed(tmp_path: Path) -> None:
    """An epoch without rows records the start of `start: latest`. That must not count as input."""
    job = SparklessJob.create(tmp_path, {"settle: 0s": "settle: 0s\n    start: latest"})
    spec = job.folder / "config" / "small.yaml"
    assert job.master.reports.status(HOUR_MS).exit_code == 6, "also before the first epoch"
    job.master.epochs.run(Session.cli(), SparklessRunner())
    status = job.master.reports.status()
    assert (status.head, status.condition, status.exit_code) == (1, Condition.NO_INPUT, 0)
    bounded = job.master.reports.status(HOUR_MS)
    assert (bounded.condition, bounded.exit_code) == (Condition.NO_INPUT, 6)
    wording.matches("status", bounded.next_step)
    told = milepost("status", spec, "--max-lag", "1h")
    assert told.exit_code == 6 and bounded.next_step in told.stdout
    wording.matches("status", told.stdout.splitlines()[0])
    job.land("a.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    assert job.master.reports.status(HOUR_MS).condition is Condition.HEALTHY


def test_a_job_whose_spec_cannot_continue_its_head_is_not_healthy(tmp_path: Path) -> None:
    """The next run would be refused, after an edit or after a rollback to a checkpoint of another spec."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    assert job.master.reports.status().spec_refused is None
    edited = SparklessJob.create(tmp_path / "edited", {"key: [k]": "key: [v]"})
    spec = job.folder / "config" / "small.yaml"
    spec.write_text((edited.folder / "config" / "small.yaml").read_text())
    status = job.master.reports.status()
    assert (status.exit_code, status.healthy) == (1, False)
    wording.matches("status", status.next_step)
    wording.matches("status", status.spec_refused)
    with wording.raises(InvalidRequest) as refused:
        job.master.epochs.run(Session.cli(), SparklessRunner())
    assert reason_for(refused.value) is CheckpointFailureReason.SPEC_REFUSED
    assert address(page_of(refused.value)) == status.runbook == "milepost runbook spec-refused"


def test_the_error_of_a_moved_spec_resolves_each_recorded_path(tmp_path: Path) -> None:
    """A relative path resolves to another location from another folder. Its text is recorded."""
    job = SparklessJob.create(tmp_path / "project")
    job.land("a.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    away = tmp_path / "away" / "specs"
    away.mkdir(parents=True)
    text = (job.folder / "config" / "small.yaml").read_text()
    moved = away / "small.yaml"
    moved.write_text(text.replace("../", f"{job.folder}/"))
    with wording.raises(InvalidRequest) as refused:
        JobMaster(load_job(moved)).epochs.run(Session.cli(), SparklessRunner())
    assert str(tmp_path) in refused.value.hint
    assert reason_for(refused.value) is CheckpointFailureReason.SPEC_REFUSED
    rows = {row["uid"]: row["detail"] for row in JobMaster(load_job(moved)).reports.compatibility()}
    for uid, path in (("source rows", "landing"), ("sink table", "lake/table")):
        assert f"file://{tmp_path}/away/{path}" in rows[uid]
        wording.matches("compatibility", rows[uid])


def test_what_matches_but_cannot_be_read_is_no_match(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path, {"settle: 0s": "on_bad_name: skip"})
    for name in (".a.csv", "_b.csv", "\x01.csv"):
        job.land(name)
    job.land("c.csv", "")
    told = job.master.reports.status().sources["rows"].no_match
    wording.matches("status", told)


@pytest.mark.parametrize(
    "path", ["landing/?.csv", "landing/[ab].csv", "landing"], ids=["question mark", "brackets", "folder"]
)
def test_a_path_without_a_supported_wildcard_is_reported_with_the_supported_ones(tmp_path: Path, path: str) -> None:
    job = SparklessJob.create(tmp_path, {"path: ../landing/*.csv": f'path: "../{path}"'})
    job.land("a.csv")
    told = job.master.reports.status().sources["rows"].no_match
    assert told is not None and f"../{path}" in told
    wording.matches("status", told)


def test_a_job_whose_input_has_stopped_is_beyond_the_lag_although_nothing_is_unread(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    path = age(job.land("a.csv"), 3)
    job.epoch()
    assert job.master.reports.status(4 * HOUR_MS).exit_code == 0
    status = job.master.reports.status(2 * HOUR_MS)
    assert (status.exit_code, status.lag_ms, status.unread_objects) == (6, 0, 0)
    landed = status.sources["rows"].newest_object
    wording.matches("status", status.next_step, replace=wording.TIMES)
    assert iso_ms(path.stat().st_mtime_ns // 1_000_000) == landed


def test_a_job_whose_newest_event_is_old_is_beyond_the_lag_although_objects_land(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path, TIMED)
    job.land("a.csv", "k,v,t\n1,a,2026-01-01T00:00:00Z\n")
    now_us = time.time_ns() // 1000

    def delivered(newest_us: int) -> Callable[[CheckpointMetadata], CheckpointMetadata]:
        return lambda made: replace(made, sources={"rows": replace(made.sources["rows"], newest_event_us=newest_us)})

    job.epoch(delivered(now_us - 3 * HOUR_US))
    assert job.master.reports.status(4 * HOUR_MS).exit_code == 0
    status = job.master.reports.status(2 * HOUR_MS)
    assert status.exit_code == 6
    wording.matches("status", status.next_step, replace=wording.TIMES)


def test_an_event_a_few_seconds_in_the_future_has_age_zero(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path, TIMED)
    job.land("a.csv", "k,v,t\n1,a,2026-01-01T00:00:00Z\n")
    soon_us = time.time_ns() // 1000 + HOUR_US
    job.epoch(lambda made: replace(made, sources={"rows": replace(made.sources["rows"], newest_event_us=soon_us)}))
    assert job.master.reports.status().sources["rows"].event_time_age_ms == 0


def test_a_source_without_event_time_is_not_checked_if_another_one_has_it(tmp_path: Path) -> None:
    static = {"operators:\n": "  codes: {format: csv, path: ../codes/*.csv, schema: {k: int64}}\noperators:\n"}
    job = SparklessJob.create(tmp_path, TIMED | static)
    (tmp_path / "codes").mkdir()
    (tmp_path / "codes" / "a.csv").write_text("k\n1\n")
    age(tmp_path / "codes" / "a.csv", 2000)
    sources = job.master.reports.status().sources
    assert sources["codes"].newest_object_age_ms > 1900 * HOUR_MS
    assert stale("small", 0, sources, HOUR_MS) is None
    assert stale("small", 0, {"codes": sources["codes"]}, HOUR_MS) is not None


def test_a_completed_checkpoint_that_waits_for_its_sink_is_not_healthy(tmp_path: Path) -> None:
    """I11: it is committed but not visible. The next run publishes it."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    session = Session.cli()
    completed = job.complete(session, job.trigger(session))
    status = job.master.reports.status()
    assert (status.exit_code, status.healthy, status.unconfirmed) == (1, False, ("table",))
    wording.matches("status", status.next_step)
    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    assert job.master.reports.status().exit_code == 0


def test_an_object_that_changed_after_it_was_consumed_is_reported_and_not_raised(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    path = job.land("a.csv")
    job.epoch()
    path.write_text("k,v\n1,changed\n")
    status = job.master.reports.status(HOUR_MS)
    assert status.exit_code == 1
    wording.matches("status", status.next_step)
    assert (status.unread_objects, status.lag_ms, status.head) == (None, None, 1)


def test_a_local_file_is_restored_with_the_modification_time_in_the_message(tmp_path: Path) -> None:
    """The same bytes with another time are another version."""
    job = SparklessJob.create(tmp_path)
    path = job.land("a.csv")
    job.epoch()
    path.write_text(path.read_text())
    told = job.master.reports.status().next_step
    wording.matches("status", told)
    consumed = re.search(r"\b\d+-(\d{19})\b", told)
    assert consumed is not None
    os.utime(path, ns=(int(consumed[1]), int(consumed[1])))
    assert job.master.reports.status().healthy


def test_a_pending_checkpoint_with_an_expired_lease_is_reported(tmp_path: Path) -> None:
    """I10: the job makes no progress until the next run sweeps it."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    living = Session.cli()
    job.trigger(living)
    status = job.master.reports.status()
    assert (status.exit_code, status.pending, status.lease_over) == (1, 1, None), "nothing has succeeded yet"
    assert status.leader.session_id == living.session_id and status.job_status == "running"
    wording.matches("status", status.next_step)
    dead = replace(living, holder=replace(living.holder, create_time_ms=living.holder.create_time_ms - HOUR_MS))
    job.rebind(dead)
    status = job.master.reports.status()
    assert status.exit_code == 1
    wording.matches("status", status.next_step)
