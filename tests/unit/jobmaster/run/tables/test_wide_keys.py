"""Tables of buckets whose key is wider than what rows are exchanged by: ranks, windows and sessions that come again."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from milepost.errors import InvalidRequest
from milepost_testkit.law.job import LawJob
from milepost_testkit.rows.tables import assert_same_rows

pytestmark = pytest.mark.long

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
MINUTE_US = 60_000_000


def upsert(uid: str) -> dict[str, Any]:
    return {"name": uid, "input": uid, "format": "delta", "path": f"../lake/{uid}", "mode": "upsert", "buckets": 4}


WINDOW = {"kind": "window", "inputs": ["a"], "key": ["k"], "aggregates": {"n": "count(*)"}, "allowed_lateness": "2h"}
DOCUMENT: dict[str, Any] = {
    "name": "law",
    "storage": "../store",
    "sources": {
        "a": {"format": "parquet", "path": "../landing/a/*.parquet",
              "schema": {"k": "string", "v": "int64", "t": "timestamp[us, UTC]"}, "event_time": "t"},
    },
    "operators": [
        {"uid": "counts", "kind": "aggregate", "inputs": ["a"], "key": ["k"], "aggregates": {"n": "count(*)"}},
        {"uid": "ranks", "kind": "top", "inputs": ["counts"], "key": ["n"], "order_by": ["k"], "n": 3, "rank": "place"},
        {"uid": "hourly", "window": {"tumbling": "1h"}, **WINDOW},
        {"uid": "visits", "window": {"session": {"gap": "30m"}}, **WINDOW},
    ],
    "sinks": [upsert("ranks"), upsert("hourly"), upsert("visits")],
    "spark": {"buffer_size": "64KB"},
    "checkpointing": {"max_parallelism": 8},
}  # fmt: skip


def rows(*found: tuple[str, int]) -> pa.Table:
    """Keys, and minutes since 1970."""
    times = pa.array([minute * MINUTE_US for _, minute in found], SCHEMA.field("t").type)
    return pa.table([[k for k, _ in found], [1] * len(found), times], schema=SCHEMA)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> LawJob:
    """Three epochs at three parallelisms: ranks end, windows come again, and two sessions become one."""
    job = LawJob.create(tmp_path_factory.mktemp("prepared") / "job", deepcopy(DOCUMENT))
    for parallelism, landed in (
        (1, rows(*((k, minute) for k in "abcdefgh" for minute in (1, 45)), ("i", 70))),
        (3, rows(("a", 20), ("b", 50), ("c", 100), ("i", 130))),
        (2, rows(("a", 80), ("d", 22), ("j", 150), ("e", 125))),
    ):
        job.land("a", landed)
        job.set_parallelism(parallelism)
        job.run(cut_short=parallelism == 3)
        assert_engines(job)
    return job


@pytest.fixture
def job(prepared: LawJob, tmp_path: Path) -> LawJob:
    return prepared.copy_to(tmp_path / "job")


def assert_engines(job: LawJob) -> None:
    """Tables are what the law says, and what an engine finds in them."""
    job.check()
    for uid in ("ranks", "hourly", "visits"):
        table = DeltaTable(str(job.folder / "lake" / uid)).to_pyarrow_table()
        expected = job.master.reports.read(uid)
        assert_same_rows(table.cast(expected.schema), expected, uid)


@pytest.mark.deep
def test_engines_see_each_epoch_back_and_aside(job: LawJob) -> None:
    job.rollback(1)
    assert_engines(job)
    job.run()
    assert_engines(job)
    job.backfill(2, ranges_per_epoch=2)
    assert_engines(job)


def test_rows_of_one_routing_key_are_in_one_bucket(job: LawJob) -> None:
    """Their windows do, although each has another key: the subtask that has them writes no other one's bucket."""
    table = DeltaTable(str(job.folder / "lake" / "hourly"))
    files = [set(pq.read_table(file.removeprefix("file://")).column("k").to_pylist()) for file in table.file_uris()]
    assert len(files) > 1 and sum(map(len, files)) == len(set[str]().union(*files)), "no key is in two files"


def test_another_key_of_the_same_rows_is_refused(job: LawJob) -> None:
    job.document["operators"][2]["key"] = ["v"]
    job.land("a", rows(("a", 160)))
    job.set_parallelism(2)
    with pytest.raises(InvalidRequest, match="hourly"):
        job.run()
