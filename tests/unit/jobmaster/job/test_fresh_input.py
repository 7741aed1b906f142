"""Objects that are very new or have unusable names are postponed and reported, never read in part."""

from __future__ import annotations

import os
import time
from pathlib import Path

from milepost.epoch.plan import InputRecord, decode_input_record
from milepost.errors import InvalidRequest
from milepost.jobmaster import NothingToDo, Session, Triggered
from milepost.jobmaster.reports.health.sources import LeftOutObjects
from milepost.storage.object_handles import read_handle
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

SETTLES = {"settle: 0s": "settle: 1h"}
DATED = {"../landing/*.csv": "../landing/**/*.csv", "limits_per_epoch: {max_files: 1}": "partitions: {dt: date}"}
SKIPS = {"settle: 0s": "on_bad_name: skip\n    settle: 0s"}
BAD_DATE = "dt=someday/a.csv"


def aged(path: Path, hours: float) -> Path:
    then = time.time() - hours * 3600
    os.utime(path, (then, then))
    return path


def land_dated(job: SparklessJob, *names: str) -> None:
    for name in names:
        (job.folder / "landing" / name).parent.mkdir(exist_ok=True)
        job.land(name)


def record_of(job: SparklessJob) -> InputRecord:
    return decode_input_record(read_handle(job.context.store, job.pending.plan))


def planned(job: SparklessJob) -> list[str]:
    assert isinstance(job.master.triggers.trigger(Session.cli()), Triggered)
    return [obj.key for item in record_of(job).sources for obj in item.objects]


def test_a_young_file_is_left_for_the_next_plan_and_counts_as_unread(tmp_path: Path) -> None:
    """Its writer may still be writing, and half of it would be consumed as the whole."""
    job = SparklessJob.create(tmp_path, SETTLES)
    path = job.land("a.csv")
    answer = job.master.triggers.trigger(Session.cli())
    assert isinstance(answer, NothingToDo) and answer.status == "empty"
    assert answer.settles_in_ms is not None and 3_500_000 < answer.settles_in_ms <= 3_600_000
    wording.matches("input", answer.message, replace={r"\b3,?[56]\d\d\b": "{time}"})
    status = job.master.reports.status()
    assert (status.unread_objects, status.sources["rows"].settling) == (1, 1)
    aged(path, 1.1)
    assert planned(job) == ["a.csv"]


def test_an_old_file_does_not_wait_for_a_young_one(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path, SETTLES)
    job.land("a.csv")
    aged(job.land("b.csv"), 2)
    assert planned(job) == ["b.csv"]
    assert record_of(job).sources[0].pending_objects == 1


def test_a_file_that_was_modified_in_the_future_counts_as_old(tmp_path: Path) -> None:
    """Its time says nothing about when it was written, and waiting for it could take years."""
    job = SparklessJob.create(tmp_path, SETTLES)
    aged(job.land("a.csv"), -1)
    assert planned(job) == ["a.csv"]


def test_without_settle_a_file_is_read_at_once_and_by_default_it_is_not(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path / "off")
    job.land("a.csv")
    assert planned(job) == ["a.csv"]
    job = SparklessJob.create(tmp_path / "default", {"    settle: 0s\n": ""})
    aged(job.land("a.csv"), 0.001)  # 3.6 s
    assert planned(job) == ["a.csv"]
    assert job.loaded().spec.sources["rows"].settle.total_seconds() == 2


def test_a_drain_does_not_end_a_job_that_waits_for_a_young_file(tmp_path: Path) -> None:
    """Unread input would be lost, because an ended job does not run again."""
    job = SparklessJob.create(tmp_path, SETTLES)
    aged(job.land("a.csv"), 2)
    job.epoch()
    job.land("b.csv")
    assert isinstance(job.master.triggers.trigger(Session.cli(), drain=True), NothingToDo)
    assert job.master.reports.status().job_status == "running"


def test_a_young_file_at_the_first_epoch_of_a_source_that_starts_at_the_latest_lands_after_it(tmp_path: Path) -> None:
    """Recorded while it is written, it would be a consumed object that changed."""
    job = SparklessJob.create(tmp_path, {"settle: 0s": "settle: 1h\n    start: latest"})
    aged(job.land("a.csv"), 2)
    job.land("b.csv")
    assert planned(job) == []
    assert [obj.key for obj in record_of(job).sources[0].baseline] == ["a.csv"]


def test_what_a_source_that_starts_at_the_latest_skips_is_shown_before_and_after_its_first_epoch(
    tmp_path: Path,
) -> None:
    job = SparklessJob.create(tmp_path, {"settle: 0s": "settle: 0s\n    start: latest"})
    assert job.master.reports.status().sources["rows"].skipped_at_start is None
    aged(job.land("b.csv"), 2)
    aged(job.land("a.csv"), 3)
    skips, spec = (
        "`start: latest` skips 2 objects, the newest is b.csv, modified ",
        job.folder / "config" / "small.yaml",
    )

    def assert_shown() -> None:
        assert skips in " ".join(milepost("status", spec).stdout.split())
        (warning,) = milepost("lint", spec).error
        assert skips in warning

    assert_shown()
    for name in ("c.csv", "d.csv"):
        assert not isinstance(job.master.epochs.run(Session.cli(), SparklessRunner()), NothingToDo)
        aged(job.land(name), 1)
        assert job.master.reports.status().sources["rows"].unread_objects == 1
        assert_shown()


def test_a_source_that_starts_at_the_latest_without_objects_skips_none(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path, {"settle: 0s": "settle: 0s\n    start: latest"})
    assert not isinstance(job.master.epochs.run(Session.cli(), SparklessRunner()), NothingToDo)
    job.land("a.csv")
    assert job.master.reports.status().sources["rows"].skipped_at_start is None


def test_a_name_that_cannot_be_used_stops_the_plan_and_says_what_skips_it(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path, DATED)
    land_dated(job, "dt=2026-01-01/a.csv", BAD_DATE)
    with wording.raises(InvalidRequest) as raised:
        job.master.triggers.trigger(Session.cli())
    assert BAD_DATE in raised.value.message
    assert raised.value.details["names"] == [BAD_DATE]
    status = job.master.reports.status()
    assert (status.exit_code, status.unread_objects, status.healthy) == (1, None, False)
    assert BAD_DATE in status.next_step
    wording.matches("status", status.next_step)


def test_a_name_that_cannot_be_used_is_left_out_counted_and_named(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path, {**DATED, **SKIPS})
    land_dated(job, "dt=2026-01-01/a.csv", BAD_DATE, "undated.csv")
    (job.folder / "landing" / "dt=2026-01-02").mkdir()
    (job.folder / "landing" / "dt=2026-01-02" / os.fsdecode(b"b\xff.csv")).write_text("k,v\n1,a\n")
    (job.folder / "landing" / os.fsdecode(b"c\xff.txt")).write_text("no source's")
    assert planned(job) == ["dt=2026-01-01/a.csv"]
    (source,) = record_of(job).sources
    assert source.skipped["bad_names"] == 3
    assert [name.split(": ")[0] for name in source.bad_names] == [r"dt=2026-01-02/b\xff.csv", BAD_DATE, "undated.csv"]
    told = job.master.reports.status().sources["rows"].bad_names
    assert told == LeftOutObjects(3, (r"dt=2026-01-02/b\xff.csv", BAD_DATE, "undated.csv"))
