"""A log that refers to the files of a table (`land: {by: reference}`): readers, clean-up, and lost files."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from milepost.errors import InvalidRequest, SourceChanged
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.landing.source_probe import probe_landed_sources
from milepost.jobmaster.retention.garbage_collection import collect_garbage
from milepost.jobspec.load.load import load_job
from milepost.protocol.landed import LogRecord
from milepost.protocol.records.ids import SessionId
from milepost.protocol.records.locations import child_url, split_uri
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.table_job import SCHEMA, DeltaOrders, IcebergOrders, SalesJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.job_stores import LaterStore


@pytest.fixture(params=[DeltaOrders, IcebergOrders])
def job(tmp_path: Path, request: pytest.FixtureRequest) -> SalesJob:
    return SalesJob(tmp_path, request.param(tmp_path), "reference")


def context(job: SalesJob) -> JobContext:
    return JobContext(load_job(str(job.folder / "config" / "sales.yaml")))


def records(job: SalesJob) -> list[LogRecord]:
    log = context(job).source_log("orders")
    newest = log.newest()
    assert newest is not None
    return [log.record(number).record for number in range(1, newest.record.sequence + 1)]


def newest_file(job: SalesJob) -> Path:
    """Return the file that the newest record refers to."""
    (file,) = records(job)[-1].references
    return Path(file.uri.removeprefix("file://"))


def all_files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def test_a_record_refers_to_the_files_of_the_table_and_copies_none(job: SalesJob) -> None:
    job.append(1, 2)
    job.append(3)
    job.land()
    start, *rows = records(job)
    assert not start.references
    files = [file for record in rows for file in record.references]
    assert [(file.rows, len(record.objects)) for record in rows for file in record.references] == [(2, 0), (1, 0)]
    paths = all_files(job.folder / "warehouse")
    assert {Path(file.uri.removeprefix("file://")): file.size for file in files} == {
        path: len(body) for path, body in paths.items()
    }
    assert not list((job.folder / "store").rglob("landed/orders/objects/*"))
    assert [record.layouts for record in rows] == [({"k": "k", "n": "n", "at": "at"},)] * len(rows)


def test_the_rows_of_a_record_are_shown_as_they_are_in_the_table(job: SalesJob) -> None:
    job.append(1, 2, 2)
    job.land()
    shown = job.master.landings.rows("orders").rows.table()
    assert shown.select(SCHEMA.names).to_pylist() == job.appended.to_pylist()
    assert job.master.landings.rows("orders", limit=2).rows.num_kept == 2


@pytest.mark.long
def test_one_epoch_reads_copies_and_files_of_the_table(job: SalesJob) -> None:
    for by in ("copy", "reference", "copy", "reference"):
        job.write_spec(by)
        job.append(1, 2)
        job.land()
    assert [bool(record.references) for record in records(job)[1:]] == [False, True, False, True]
    job.epoch()
    job.assert_tables(8)


@pytest.mark.long
def test_a_deleted_file_stops_the_job_and_is_named_until_it_is_back(job: SalesJob) -> None:
    job.append(1)
    job.land()
    job.epoch()
    job.append(2)
    job.land()
    file, body, times = newest_file(job), newest_file(job).read_bytes(), newest_file(job).stat()
    file.unlink()
    for _ in range(2):
        with pytest.raises(SourceChanged) as lost:
            job.epoch()
        assert file.name in lost.value.message and "{by: copy}" in lost.value.hint
        assert any(operation in lost.value.message for operation in ("VACUUM", "expire_snapshots"))
        with pytest.raises(SourceChanged):
            job.master.landings.rows("orders")
    job.assert_tables(1)
    file.write_bytes(body)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    job.epoch()
    job.assert_tables(2)


@pytest.mark.long
def test_a_record_of_a_lost_file_is_voided_by_its_number_and_the_log_goes_on_after_a_gap(job: SalesJob) -> None:
    for key in (1, 2, 3):
        job.append(key)
        job.land()
        if key == 1:
            job.epoch()
    (file,) = records(job)[-2].references
    Path(file.uri.removeprefix("file://")).unlink()
    with pytest.raises(SourceChanged) as lost:
        job.epoch()
    number = records(job)[-2].sequence
    assert f"--source orders --void-from {number})" in lost.value.hint
    job.master.voids.approve(job.master.voids.plan("orders", str(number)).approved, "ada")
    (failed,) = job.master.landings.land().failed
    assert failed.error == "PositionExpired"
    job.master.gaps.approve(job.master.gaps.plan("orders", "earliest").approved, "ada")
    assert job.land() == 1
    job.epoch()
    assert sorted(job.master.reports.read("rows").column("k").to_pylist()) == [1, 3]


@pytest.mark.long
def test_a_gap_after_a_lost_file_passes_only_the_files_up_to_it(job: SalesJob) -> None:
    for key in (1, 2, 3, 4):
        job.append(key)
    job.land()  # the table as it is: an initial copy of four files
    record = next(each for each in records(job) if each.references)
    files = [file for each in records(job) for file in each.references]
    Path(files[1].uri.removeprefix("file://")).unlink()
    void = job.master.voids.plan("orders", str(record.sequence))
    assert void.reason.startswith("1 data file of its table lost, such as file://")
    job.master.voids.approve(void.approved, "ada")
    (failed,) = job.master.landings.land().failed
    assert failed.error == "PositionExpired"
    gap = job.master.gaps.plan("orders", "earliest")
    assert "it passes 1 data file (1 lost)" in gap.text
    assert job.master.gaps.approve(gap.approved, "ada").reason.startswith("1 data file (1 lost) passed: ")
    assert job.land() == 2
    job.epoch()
    assert job.master.reports.read("rows").num_rows == 3, "one file is lost"


def test_a_file_with_other_contents_stops_the_job(job: SalesJob) -> None:
    job.append(1)
    job.land()
    newest_file(job).write_bytes(newest_file(job).read_bytes() + b"x")
    with pytest.raises(SourceChanged, match="was replaced by another version"):
        job.epoch()


def test_a_file_that_is_deleted_while_the_epoch_begins_declines_it(job: SalesJob) -> None:
    job.append(1)
    job.land()

    class LosingRunner(SparklessRunner):
        def run(self, plan: object) -> object:
            newest_file(job).unlink()
            return super().run(plan)  # type: ignore[arg-type]

    with pytest.raises(Exception, match=r"SOURCE_OBJECT_MISSING: source orders: data file .*was deleted") as declined:
        job.epoch(LosingRunner())
    assert "{by: copy}" in getattr(declined.value, "hint", "")


@pytest.mark.long
def test_a_rollback_and_a_backfill_need_the_files_that_were_read(job: SalesJob) -> None:
    for key in (1, 2, 3):
        job.append(key)
        job.land()
        job.epoch()
    file = newest_file(job)
    file.unlink()
    with pytest.raises(SourceChanged, match=file.name):
        back_fill(job.master, SparklessRunner(), from_checkpoint=1)
    lost = f"1 data file(s) of its table to read again were deleted or replaced, such as file://{file}"
    assert any(lost in text for text in job.master.rollbacks.plan(2).not_undone)
    roll_back(job.master, 2)
    with pytest.raises(SourceChanged, match=file.name):
        job.epoch()
    job.assert_tables(2)


@pytest.mark.deep
def test_neither_epochs_nor_gc_delete_a_file_of_the_table(job: SalesJob) -> None:
    spec = job.folder / "config" / "sales.yaml"
    spec.write_text(spec.read_text().replace("retained: {last: 50}", "retained: {last: 1}"))
    spec.write_text(spec.read_text().replace("max_bytes: 1500B", "max_bytes: 1500B, retain: 0s"))
    for key in range(6):
        job.append(key)
        job.land()
        job.epoch()
    files = all_files(job.folder / "warehouse")
    later = context(job)
    assert later.source_log("orders").floor is not None, "records were trimmed"
    later.__dict__["store"] = LaterStore(later.store, later_ms=int(timedelta(days=30).total_seconds() * 1000))
    collect_garbage(later, SessionId("collector"), 1)
    assert all_files(job.folder / "warehouse") == files and len(files) == 6
    assert job.master.reports.fsck().exit_code == 0


@pytest.mark.long
def test_a_savepoint_with_input_is_refused_and_one_without_is_restored_from_the_table(job: SalesJob) -> None:
    job.append(1)
    job.land()
    job.epoch()
    job.append(2)
    job.land()
    with pytest.raises(InvalidRequest, match="refers to files of the table"):
        job.master.savepoints.create("full", target=str(job.folder / "saved"), with_input=True)
    assert not (job.folder / "saved").exists()
    job.master.savepoints.create("plain", target=str(job.folder / "saved"))
    job.epoch()
    job.master.savepoints.cancel()
    for folder in ("store", "lake"):
        (job.folder / folder).rename(job.folder / f"old {folder}")
    job.master.restores.start(str(job.folder / "saved" / "plain"))
    assert job.land() == 1
    job.epoch()
    job.assert_tables(2)


def detail(job: SalesJob) -> tuple[str, bool]:
    (probed,) = probe_landed_sources(context(job))
    return probed.detail, probed.suspicious


def test_doctor_compares_how_long_the_table_keeps_files(tmp_path: Path) -> None:
    job = SalesJob(tmp_path, DeltaOrders(tmp_path), "reference")
    job.append(1)
    assert detail(job)[1] is False and "retains deleted files for 7d (delta.deletedFile" in detail(job)[0]
    name = "delta.deletedFileRetentionDuration"
    alter = DeltaTable(tmp_path / "warehouse" / "orders").alter.set_table_properties
    alter({name: "interval 2 days"})
    text, is_suspicious = detail(job)
    assert is_suspicious and "retains deleted files for 2d" in text and "less than land.retain (7d)" in text
    alter({name: "interval 1 seconds"})
    job.land()
    job.epoch()
    job.append(2)
    job.land()
    later = context(job)
    later.__dict__["store"] = LaterStore(later.store, later_ms=90_000)
    (probed,) = probe_landed_sources(later)
    assert "the oldest retained checkpoint needs files that were landed 90s ago" in probed.detail
    job.write_spec("copy")
    assert detail(job)[1] is False and "deleted files" not in detail(job)[0]


def test_doctor_knows_the_age_at_which_snapshots_of_iceberg_expire(tmp_path: Path) -> None:
    job = SalesJob(tmp_path, IcebergOrders(tmp_path), "reference")
    job.append(1)
    text, is_suspicious = detail(job)
    assert is_suspicious and "retains deleted files for 5d (history.expire.max-snapshot-age-ms)" in text


@pytest.mark.parametrize(
    ("url", "key", "uri"),
    [
        ("s3://lake/tables/orders", "p=a b/x.parquet", "s3://lake/tables/orders/p=a b/x.parquet"),
        ("s3://lake/tables/orders", "p=%20/x.parquet", "s3://lake/tables/orders/p=%20/x.parquet"),
        ("file:///lake/50%25 off", "p=%20/x.parquet", "file:///lake/50%25 off/p=%2520/x.parquet"),
    ],
)
def test_a_uri_leads_to_the_object_that_it_was_made_of(url: str, key: str, uri: str) -> None:
    assert child_url(url, key) == uri
    root, below = split_uri(uri)
    assert child_url(root, below) == uri
    assert uri.startswith(f"{root}/") and (below == "x.parquet" if url.startswith("file") else below.endswith(key))
