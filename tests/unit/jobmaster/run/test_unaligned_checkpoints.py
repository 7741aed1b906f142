"""A checkpoint, its summary and its subtasks say that an epoch stopped before the end of its input."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from milepost.jobmaster import CheckpointReport
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.ids import CheckpointId
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.law.examples import source_document
from milepost_testkit.law.job import LawJob
from milepost_testkit.law.rows import rows_table

pytestmark = pytest.mark.deep

DOCUMENT: dict[str, Any] = {
    "name": "law",
    "storage": "../store",
    "sources": {"a": source_document("a", "0s")},
    "operators": [
        {"uid": "totals", "kind": "aggregate", "inputs": ["a"], "key": ["i"], "aggregates": {"n": "count(*)"}},
        {"uid": "keys", "kind": "aggregate", "inputs": ["totals"], "key": [], "aggregates": {"n": "count(*)"}},
    ],
    "sinks": [{"name": "keys", "input": "keys", "format": "parquet", "path": "../lake/keys", "mode": "upsert"}],
    "spark": {"buffer_size": "1KB"},
    "checkpointing": {"max_parallelism": 8, "aligned_timeout": "1ms"},
}


def test_a_checkpoint_is_unaligned_exactly_if_rows_are_in_flight(tmp_path: Path) -> None:
    job = LawJob.create(tmp_path / "job", deepcopy(DOCUMENT))
    job.land("a", rows_table(range(0, 600_000, 10_007), 0))
    for left in (True, False):
        report = job.run()
        assert isinstance(report, CheckpointReport)
        context = JobContext(job.loaded)
        metadata = context.base_metadata(context.head().state, CheckpointId(report.checkpoint_id))
        assert metadata is not None
        assert (metadata.in_flight_bytes > 0, metadata.unaligned) == (left, left)
        assert {one.node for one in metadata.shares if one.unaligned} == {
            uid for uid, operator in metadata.operators.items() if operator.in_flight_bytes
        }
        shown = json.loads(milepost("show", str(tmp_path / "job/config/law.yaml"), "--json").stdout)["data"]
        assert (shown["unaligned"], shown["in_flight_bytes"] > 0) == (left, left)
        job.document["checkpointing"].pop("aligned_timeout", None)
        job.set_parallelism(1)
    job.check()
