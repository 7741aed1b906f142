"""`status` says how far a source is landed and processed, and reads few records of a long log for it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from milepost.codec import to_json
from milepost.jobmaster import LogHealth
from milepost.jobmaster.metrics.samples import samples_of
from milepost.protocol.landed import (
    SourceBacklog,
    StoredRecord,
    decode_record,
    encode_record,
    first_record,
    next_record,
)
from milepost.protocol.landed.files import LandedObject
from milepost.protocol.records import StoreConfig
from milepost.storage import open_store
from milepost.storage.log import SourceLog
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.landed_job import LandedJob


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    return LandedJob.create(tmp_path / "job")


def health(job: LandedJob) -> LogHealth:
    sources = job.master.reports.status().sources
    assert sources is not None and sources["feed"].log is not None
    return sources["feed"].log


def test_nothing_is_unread_after_the_epoch_that_reads_all(job: LandedJob) -> None:
    assert (health(job).records, health(job).position, health(job).processed) == (0, None, None)
    job.land_and_run(1, 2)
    log = health(job)
    assert (log.unread_records, log.unread_rows, log.unread_bytes, log.oldest_unread, log.lag_ms) == (0, 0, 0, None, 0)
    assert (log.position, log.processed) == ({"next": 2}, {"next": 2})


def test_the_unprocessed_backlog_is_counted_from_its_oldest_record(job: LandedJob) -> None:
    job.land_and_run(1, 2)
    for key in (3, 4, 5):
        job.produce(key)
        job.land()
    log = health(job)
    records = [SourceLog(job.context.store, "feed").record(sequence).record for sequence in (3, 4, 5)]
    assert (log.unread_records, log.unread_rows) == (3, 3)
    assert log.unread_bytes == sum(record.bytes for record in records)
    assert (log.position, log.processed) == ({"next": 5}, {"next": 2})
    waited = time.time() * 1000 - records[0].landed_at_ms
    assert log.lag_ms == pytest.approx(waited, abs=2_000)
    status = job.master.reports.status()
    assert status.unread_objects == sum(len(record.objects) for record in records)
    assert status.unread_bytes == log.unread_bytes


def test_the_external_system_is_not_called(job: LandedJob) -> None:
    job.land_and_run(1)
    (job.folder / "feed.json").unlink()
    assert health(job).rows == 1


def test_the_command_and_the_metrics_show_it(job: LandedJob) -> None:
    job.land_and_run(1, 2)
    job.produce(3)
    job.land()
    shown = milepost("status", job.folder / "config" / "landed.yaml").stdout
    assert 'landed up to {"next": 3}, processed up to {"next": 2}' in shown
    document: dict[str, Any] = to_json(job.master.reports.status())
    log = document["sources"]["feed"]["log"]
    assert "backlog" not in log, "a class cannot say it"
    log["backlog"] = {"count": 12, "unit": "offset", "age_ms": 7_000}
    samples = {
        sample.metric.prometheus_name: (dict(sample.labels), sample.value)
        for sample in samples_of("landed", {"status": document})
        if sample.metric.scope == "source"
    }
    labels = {"job": "landed", "source": "feed"}
    assert samples["milepost_source_pendingRecords"] == (labels, 1)
    assert samples["milepost_source_pendingLogRecords"] == (labels, 1)
    assert samples["milepost_source_pendingBytes"] == (labels, log["unread_bytes"])
    assert samples["milepost_source_lag"] == (labels, log["lag_ms"])
    assert samples["milepost_source_landingBacklog"] == ({**labels, "unit": "offset"}, 12)
    assert samples["milepost_source_landingBacklogAge"] == (labels, 7_000)


class LongLog:
    """A log whose records have these numbers of rows, after the record that begins it."""

    def __init__(self, folder: Path, rows: list[int]) -> None:
        self.log = SourceLog(open_store(StoreConfig(url=folder.as_uri())), "feed")
        self.records = [self.log.append(first_record("log", {"job": "life"}, 0, 1))]
        for number, count in enumerate(rows, 2):
            key = f"{number:020d}/w{number}/00000-00000.parquet"
            objects = [LandedObject(key, 10, "0" * 64, count)] if count else []
            record = next_record("feed", self.records[-1], f"w{number}", number, objects, number * 1_000_000)
            assert record is not None
            self.records.append(self.log.append(record))
        self.reads: list[int] = []
        existing = self.log.record

        def record_read(sequence: int) -> StoredRecord:
            self.reads.append(sequence)
            return existing(sequence)

        self.log.record = record_read  # type: ignore[method-assign]

    def first_unread(self, processed: int) -> int | None:
        """Sequence of the oldest record with rows after a record that was processed; 0: nothing was."""
        position = self.records[processed - 1].position if processed else None
        rows = 0 if position is None else position.total_rows
        found = self.log.first_reaching(rows + 1, position, self.records[-1])
        return None if found is None else found.record.sequence


ROWS = [0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 4, 0]


@pytest.mark.deep
@pytest.mark.parametrize("processed", range(len(ROWS) + 2))
def test_the_oldest_unread_record_is_the_first_that_has_rows(tmp_path: Path, processed: int) -> None:
    log = LongLog(tmp_path, ROWS)
    after = [stored.record.sequence for stored in log.records[processed:] if stored.record.rows]
    assert log.first_unread(processed) == (after[0] if after else None)


def test_one_record_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = LongLog(tmp_path, [1] * 200)
    assert log.first_unread(20) == 21
    assert len(log.reads) == 1
    log.reads.clear()
    assert log.first_unread(0) == 2
    assert len(log.reads) <= 3


def test_a_record_stores_the_backlog_only_if_the_source_can_say_it() -> None:
    first = decode_record(encode_record(first_record("log", {"job": "life"}, 0, 1)), "record")
    item = LandedObject("k", 10, "0" * 64, 1)
    without = next_record("feed", first, "w2", 1, [item], 2)
    assert without is not None and "backlog" not in json.loads(encode_record(without))
    having = next_record("feed", first, "w2", 1, [item], 2, backlog=SourceBacklog(7, "offset"))
    assert having is not None
    assert decode_record(encode_record(having), "record").record.backlog == SourceBacklog(7, "offset")
    assert json.loads(encode_record(having))["backlog"] == {"count": 7, "unit": "offset"}
    aged = next_record("feed", first, "w2", 1, [item], 2, backlog=SourceBacklog(7, "mark", 9_000))
    assert aged is not None
    assert decode_record(encode_record(aged), "record").record.backlog == SourceBacklog(7, "mark", 9_000)
