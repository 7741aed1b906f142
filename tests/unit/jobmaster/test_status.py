"""`status` says what is true and what to type: lag, what waits, what is stuck."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from pipeline.jobmaster import Session
from tests.harness.sparkless_job import SparklessJob

HOUR_S = 3600
HOUR_MS = 1000 * HOUR_S


def age(path: Path, hours: int) -> None:
    then = time.time() - hours * HOUR_S
    os.utime(path, (then, then))


def test_the_lag_is_that_of_the_oldest_new_object_also_when_the_limits_leave_it_for_later(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    age(job.land("a.csv"), 1)
    age(job.land("z.csv"), 9)
    status = job.master.status(5 * HOUR_MS)
    assert 9 * HOUR_MS <= status["lag_ms"] < 10 * HOUR_MS
    assert (status["unread_objects"], status["exit_code"]) == (2, 6)


def test_a_completed_checkpoint_that_waits_for_its_sink_is_not_healthy(tmp_path: Path) -> None:
    """I11: it is committed and nobody sees it; the next run publishes it."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    session = Session.cli()
    completed = job.complete(session, job.trigger(session))
    status = job.master.status()
    assert (status["exit_code"], status["healthy"], status["unconfirmed"]) == (1, False, ["table"])
    assert status["next_step"] == ("completed checkpoints wait for sinks table: milepost run small publishes them")
    job.master.notify_complete(session, completed.checkpoint_id, "table")
    assert job.master.status()["exit_code"] == 0


def test_an_object_that_changed_after_it_was_consumed_is_reported_and_not_raised(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    path = job.land("a.csv")
    job.epoch()
    path.write_text("k,v\n1,changed\n")
    status = job.master.status(HOUR_MS)
    assert status["exit_code"] == 1
    assert status["next_step"].startswith("source rows: 1 object(s) changed after they were consumed: Put the consumed")
    assert (status["unread_objects"], status["lag_ms"], status["head"]) == (None, None, 1)


def test_a_pending_checkpoint_that_nobody_works_on_is_told(tmp_path: Path) -> None:
    """I10: the next run sweeps it; until then nothing moves."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    living = Session.cli()
    job.trigger(living)
    status = job.master.status()
    assert (status["exit_code"], status["pending"], status["lease_over"]) == (0, 1, None)
    assert status["leader"]["session_id"] == living.session_id and status["job_status"] == "running"
    assert status["next_step"] == "checkpoint 1 is running: wait for it (milepost abort small gives it up)"
    dead = replace(living, holder=replace(living.holder, create_time_ms=living.holder.create_time_ms - HOUR_MS))
    job.rebind(dead)
    status = job.master.status()
    assert status["exit_code"] == 1
    assert status["next_step"] == "checkpoint 1 is pending, its lease is over (holder dead): milepost run small"
