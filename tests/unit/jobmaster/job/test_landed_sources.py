"""A job with a landed source: its stores and checks, and what this version refuses by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.health.source_checks import source_checks
from milepost.jobspec.load import LoadedJob, load_job

SPEC = """\
name: bids
storage: lake
sources:
  bids: {format: nexmark, events: bid, event_time: event_time}
  clicks: {format: python, source: "feeds:Clicks", schema: {k: int64}}
  orders: {format: csv, path: landing/*.csv, schema: {k: int64}}
operators:
  - {uid: totals, kind: aggregate, inputs: [bids], key: [auction], aggregates: {n: count(*)}}
sinks:
  - {name: totals, input: totals, format: parquet, path: out/totals, mode: upsert}
  - {name: clicks, input: clicks, format: parquet, path: out/clicks, mode: append}
  - {name: orders, input: orders, format: parquet, path: out/orders, mode: append}
"""


@pytest.fixture
def job(tmp_path: Path) -> LoadedJob:
    (tmp_path / "bids.yaml").write_text(SPEC)
    return load_job(str(tmp_path / "bids.yaml"))


def test_the_objects_of_a_landed_source_are_in_the_storage_of_the_job(job: LoadedJob) -> None:
    context = JobContext(job)
    assert context.source_store("bids") == context.log_store("bids")
    assert context.log_store("bids").url == f"{context.store_config.url}/landed/bids/objects"
    assert context.source_store("orders") == context.source("orders")[0]


def test_doctor_names_what_a_source_is_landed_from(job: LoadedJob) -> None:
    details = {check.name: (check.ok, check.detail) for check in source_checks(job)}
    assert details["bids"] == (True, "landed from nexmark:bid")
    assert details["clicks"] == (True, "landed from feeds:Clicks")
    assert details["orders"][1].startswith("no object matches")
