"""A job with `top`: filled tables, changed specs, replays, and `state` as for any other operator."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost_testkit.law.job import LawJob

pytestmark = pytest.mark.deep

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int32())])
FIRST = {"uid": "first", "kind": "top", "inputs": ["a"], "key": ["k"], "order_by": [{"v": "desc"}], "n": 2,
         "rank": "place"}  # fmt: skip
DOCUMENT: dict[str, Any] = {
    "name": "law",
    "storage": "../store",
    "sources": {"a": {"format": "parquet", "path": "../landing/a/*.parquet", "schema": {"k": "string", "v": "int32"}}},
    "operators": [FIRST],
    "sinks": [{"name": "first", "input": "first", "format": "parquet", "path": "../lake/first", "mode": "upsert"}],
    "spark": {"buffer_size": "64KB"},
    "checkpointing": {"max_parallelism": 8},
}


def rows(*found: tuple[str, int]) -> pa.Table:
    return pa.table([[k for k, _ in found], [v for _, v in found]], schema=SCHEMA)


@pytest.fixture
def job(tmp_path: Path) -> LawJob:
    """Two checkpoints, at two parallelisms."""
    job = LawJob.create(tmp_path / "job", deepcopy(DOCUMENT))
    job.land("a", rows(("x", 1), ("x", 2), ("y", 1)))
    job.run()
    job.land("a", rows(("x", 3), ("z", 1)))
    job.set_parallelism(3)
    job.run()
    return job


def test_the_table_has_the_present_ranking_and_state_the_rows_behind_it(job: LawJob) -> None:
    assert job.shown("first") == [("x", 2, 2), ("x", 3, 1), ("y", 1, 1), ("z", 1, 1)]
    assert job.master.reports.state("first").num_rows == 4
    job.check()
    job.backfill(2, ranges_per_epoch=1)
    job.check()


def test_a_table_that_begins_later_has_all_ranks(job: LawJob) -> None:
    job.document["sinks"].append(DOCUMENT["sinks"][0] | {"name": "again", "path": "../lake/again"})
    job.set_parallelism(2)
    job.land("a", rows(("z", 0)))
    job.run()
    assert job.shown("again") == job.shown("first") and ("z", 0, 2) in job.shown("first")


@pytest.mark.parametrize("changed", [{"n": 3}, {"order_by": ["v"]}])
def test_another_order_or_number_is_refused(job: LawJob, changed: dict[str, Any]) -> None:
    job.document["operators"][0] |= changed
    job.set_parallelism(2)
    job.land("a", rows(("z", 0)))
    with pytest.raises(InvalidRequest, match="first"):
        job.run()


def test_ranks_are_those_of_the_aggregates_own_table_through_rollbacks_and_backfills(tmp_path: Path) -> None:
    """Keys by how often they came: a key moves from one number to the next, and the ranks that it leaves end."""
    document = deepcopy(DOCUMENT)
    totals = {"uid": "totals", "kind": "aggregate", "inputs": ["a"], "key": ["k"], "aggregates": {"n": "count(*)"}}
    document["operators"] = [totals, FIRST | {"inputs": ["totals"], "key": ["n"], "order_by": ["k"]}]
    for sink, mode in (("totals", "upsert"), ("first", "changelog")):
        document["sinks"].append({"name": f"{sink}_{mode}", "input": sink, "format": "parquet", "mode": mode,
                                  "path": f"../lake/{sink}_{mode}"})  # fmt: skip
    job = LawJob.create(tmp_path / "job", document)
    for parallelism, keys in ((1, "xyz"), (3, "xy"), (2, "x"), (1, "zw")):
        job.land("a", rows(*((key, 1) for key in keys)))
        job.set_parallelism(parallelism)
        job.run()
        assert job.shown("first") == ranks(job)
    assert {row["_op"] for row in job.master.reports.read("first_changelog").to_pylist()} == {"upsert", "delete"}
    job.rollback(2)
    assert job.shown("first") == ranks(job) == [("x", 2, 1), ("y", 2, 2), ("z", 1, 1)]
    job.run()
    job.backfill(1, ranges_per_epoch=2)
    assert job.shown("first") == ranks(job)


def ranks(job: LawJob) -> list[tuple[Any, ...]]:
    """The first two keys of each number, of the totals that their own table shows."""
    totals = sorted((n, k) for k, n in job.shown("totals_upsert"))
    places = [(k, n, sum(m == n and j <= k for m, j in totals)) for n, k in totals]
    return sorted(one for one in places if one[-1] <= 2)
