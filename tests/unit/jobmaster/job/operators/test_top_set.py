"""A job whose sums are of the first rows of each key, which have no rank: back, aside, and tried twice."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost_testkit.law.job import LawJob

pytestmark = pytest.mark.deep

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
DOCUMENT: dict[str, Any] = {
    "name": "law",
    "storage": "../store",
    "sources": {
        "a": {"format": "parquet", "path": "../landing/a/*.parquet", "schema": {"k": "string", "v": "int64"}},
    },
    "operators": [
        {"uid": "largest", "kind": "top", "inputs": ["a"], "key": ["k"], "order_by": [{"v": "desc"}], "n": 2},
        {"uid": "sums", "kind": "aggregate", "inputs": ["largest"], "key": ["k"], "aggregates": {"v": "sum(v)"}},
        {
            "uid": "first",
            "kind": "top",
            "inputs": ["largest"],
            "key": ["k"],
            "order_by": ["v"],
            "n": 1,
            "rank": "place",
        },
    ],
    "sinks": [
        {"name": "sums", "input": "sums", "format": "parquet", "path": "../lake/sums", "mode": "upsert"},
        {"name": "first", "input": "first", "format": "parquet", "path": "../lake/first", "mode": "upsert"},
    ],
    "spark": {"buffer_size": "64KB"},
    "checkpointing": {"max_parallelism": 8},
}


def rows(*found: tuple[str, int]) -> pa.Table:
    return pa.table([list(column) for column in zip(*found, strict=True)], schema=SCHEMA)


@pytest.fixture
def job(tmp_path: Path) -> LawJob:
    job = LawJob.create(tmp_path / "job", deepcopy(DOCUMENT))
    job.land("a", rows(("x", 1), ("x", 5), ("y", 2)))
    job.run()
    job.land("a", rows(("x", 9), ("x", 3), ("y", 1)))
    job.set_parallelism(3)
    job.run(cut_short=True)
    return job


def test_sums_are_of_the_rows_that_are_first_now(job: LawJob) -> None:
    assert job.shown("sums") == [("x", 14), ("y", 3)]
    assert job.shown("first") == [("x", 5, 1), ("y", 1, 1)]
    job.check()
    job.rollback(1)
    assert job.shown("sums") == [("x", 6), ("y", 2)]
    job.run()
    job.backfill(2, ranges_per_epoch=1)
    assert job.shown("sums") == [("x", 14), ("y", 3)]
    job.check()
