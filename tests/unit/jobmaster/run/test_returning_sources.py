"""A source that leaves the spec keeps its position: what it had read is not read again when it is back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.jobmaster import CheckpointReport
from milepost.jobmaster.compatibility.preflight import preflight
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.ids import CheckpointId
from milepost_testkit.law.examples import source_document
from milepost_testkit.law.job import LawJob
from milepost_testkit.law.rows import rows_table

FEED = "feed"


def copied(source: str) -> dict[str, Any]:
    return {"name": source, "input": source, "format": "parquet", "path": f"../lake/{source}", "mode": "append"}


@pytest.fixture
def job(tmp_path: Path) -> LawJob:
    return LawJob.create(
        tmp_path / "job",
        {
            "name": "law",
            "storage": "../store",
            "sources": {name: source_document(name, "0s") for name in ("a", FEED)},
            "sinks": [copied("a"), copied(FEED)],
            "spark": {},
            "checkpointing": {"max_parallelism": 8},
        },
    )


def land(job: LawJob, number: int) -> None:
    for name in ("a", FEED):
        job.land(name, rows_table([number * 3, number * 5 + 1], number))


def positions(job: LawJob, checkpoint_id: int) -> tuple[Any, ...]:
    context = JobContext(job.loaded)
    metadata = context.base_metadata(context.head().state, CheckpointId(checkpoint_id))
    assert metadata is not None
    feed = metadata.sources[FEED]
    return feed.consumed, feed.watermark_us, feed.newest_event_us, feed.horizon_ms


@pytest.mark.deep
@pytest.mark.parametrize("ends", ["read", "rolled back"])
def test_a_returning_source_continues_from_its_position(job: LawJob, ends: str) -> None:
    """Over several epochs without it, and after a rollback to a checkpoint of when it was away, or had not left."""
    for number in range(2):
        land(job, number)
        job.run()
    before = job.lineage[-1]
    job.drop(FEED)
    for number in range(2, 4):
        land(job, number)
        report = job.run()
        assert isinstance(report, CheckpointReport)
        assert positions(job, report.checkpoint_id) == positions(job, before)
        job.check()
    if ends == "rolled back":
        job.rollback(1)
    job.bring_back()
    context = JobContext(job.loaded)
    base = context.base_metadata(context.head().state, CheckpointId(job.lineage[-1]))
    (row,) = (row for row in preflight(context, base, None) if row["uid"] == f"source {FEED}")
    away = f"the spec of checkpoint {job.lineage[-1]} did not have it: it continues at its position"
    assert (row["outcome"], row["detail"]) == ("restored", away)
    while isinstance(job.run(), CheckpointReport):
        job.check()
    job.check_read(job.lineage, whole=True)
    assert job.master.reports.read(FEED).num_rows == 4 * 2


def test_the_law_detects_a_source_read_twice_and_one_never_read(job: LawJob) -> None:
    """Who judges must be judged first."""
    land(job, 1)
    job.run()
    job.check_read(job.lineage, whole=True)
    landed = job.landed[FEED]
    job.landed[FEED] = [landed[0].slice(1)]
    with pytest.raises(AssertionError, match="source feed: read more often than it landed"):
        job.check_read(job.lineage, whole=False)
    job.landed[FEED] = [*landed, pa.concat_tables(landed)]
    job.check_read(job.lineage, whole=False)
    with pytest.raises(AssertionError, match="source feed: never read"):
        job.check_read(job.lineage, whole=True)
