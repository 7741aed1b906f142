"""A job whose aggregates have conditions as filters: tables, replays, rows in flight, and changed conditions."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost_testkit import wording
from milepost_testkit.law.job import LawJob

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
MINUTE_US = 60_000_000
LARGE = "v > 1 and k <> 'z'"
CALLS = {
    "n": "count(*)",
    "large": f"sum(v) filter (where {LARGE})",
    "values": f"count(distinct v) filter (where {LARGE})",
    "small": "count(v) filter (where not (v > 1))",
}
DOCUMENT: dict[str, Any] = {
    "name": "law",
    "storage": "../store",
    "sources": {
        "a": {"format": "parquet", "path": "../landing/a/*.parquet",
              "schema": {"k": "string", "v": "int64", "t": "timestamp[us, UTC]"}, "event_time": "t"},
    },
    "operators": [
        {"uid": "totals", "kind": "aggregate", "inputs": ["a"], "key": ["k"], "aggregates": CALLS},
        {"uid": "hourly", "kind": "window", "inputs": ["a"], "key": ["k"], "window": {"tumbling": "1h"},
         "aggregates": {"large": f"count(*) filter (where {LARGE})"}},
    ],
    "sinks": [
        {"name": "totals", "input": "totals", "format": "parquet", "path": "../lake/totals", "mode": "upsert"},
        {"name": "hourly", "input": "hourly", "format": "parquet", "path": "../lake/hourly", "mode": "append"},
        {"name": "late", "input": "hourly.late", "format": "parquet", "path": "../lake/late", "mode": "append"},
    ],
    "spark": {"buffer_size": "64KB"},
    "checkpointing": {"max_parallelism": 8},
}  # fmt: skip


def rows(*found: tuple[str, int | None, int]) -> pa.Table:
    ks, vs, minutes = (list(column) for column in zip(*found, strict=True))
    return pa.table([ks, vs, pa.array([one * MINUTE_US for one in minutes], SCHEMA.field("t").type)], schema=SCHEMA)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> LawJob:
    job = LawJob.create(tmp_path_factory.mktemp("prepared") / "job", deepcopy(DOCUMENT))
    job.land("a", rows(("x", 1, 1), ("x", 5, 2), ("y", None, 3), ("z", 9, 70)))
    job.run()
    job.land("a", rows(("x", 5, 4), ("y", 7, 130)))
    job.set_parallelism(3)
    job.run()
    return job


@pytest.fixture
def job(prepared: LawJob, tmp_path: Path) -> LawJob:
    return prepared.copy_to(tmp_path / "job")


@pytest.mark.deep
def test_only_rows_of_which_a_condition_is_true_count(job: LawJob) -> None:
    assert job.shown("totals") == [("x", 3, 10, 1, 1), ("y", 2, 7, 1, 0), ("z", 1, None, 0, 0)]
    assert [row[-1] for row in job.shown("hourly")] == [1, 0, 0]
    assert job.master.reports.read("late").column_names == SCHEMA.names
    job.check()
    job.backfill(2, ranges_per_epoch=1)
    job.check()


def test_state_shows_results_by_their_names(job: LawJob) -> None:
    found = job.master.reports.state_values("totals").sort_by("k").to_pylist()
    assert found[0] == {"k": "x", "n": 3, "large": 10, "values": 1, "small": 1}


OFTEN: dict[str, Any] = {
    "uid": "often",
    "kind": "aggregate",
    "inputs": ["totals"],
    "key": [],
    "aggregates": {"keys": "count(*)", "often": "count(*) filter (where n > 1)", "most": "max(n) filter (where n < 3)"},
}
SHOWN = {"name": "often", "input": "often", "format": "parquet", "path": "../lake/often", "mode": "upsert"}


@pytest.mark.long
def test_a_retracted_row_is_judged_as_when_it_arrived(tmp_path: Path) -> None:
    """Each update is a row that goes and one that comes, of which a condition may say different things."""
    document = deepcopy(DOCUMENT)
    document["operators"].append(OFTEN)
    document["sinks"].append(SHOWN)
    job = LawJob.create(tmp_path / "job", document)
    job.land("a", rows(("x", 1, 1), ("x", 5, 2), ("y", None, 3), ("z", 9, 70)))
    job.run()
    assert job.shown("often") == [(3, 1, 2)]
    job.land("a", rows(("x", 5, 4), ("y", 7, 130)))
    job.set_parallelism(3)
    job.run(cut_short=True)
    assert job.shown("often") == [(3, 2, 2)]
    job.check()
    job.backfill(2, ranges_per_epoch=1)
    assert job.shown("often") == [(3, 2, 2)]


def test_one_that_is_new_behind_updates_judges_all_rows_that_are_there(job: LawJob) -> None:
    job.document["operators"].append(OFTEN)
    job.document["sinks"].append(SHOWN)
    job.land("a", rows(("y", 1, 140)))
    job.set_parallelism(2)
    job.run()
    assert job.shown("often") == [(3, 2, 1)]


@pytest.mark.parametrize("condition", ["v > 2", "v  > 1 and k <> 'z'"])
def test_another_condition_is_refused_before_anything_is_planned(job: LawJob, condition: str) -> None:
    """Rows that were consumed are not seen again; nor is it known that another text says the same."""
    job.document["operators"][0]["aggregates"] = CALLS | {"large": f"sum(v) filter (where {condition})"}
    job.set_parallelism(2)
    job.land("a", rows(("x", 1, 140)))
    with pytest.raises(InvalidRequest, match="totals"):
        job.run()


@pytest.mark.parametrize(
    "condition",
    [
        "w > 1",
        "v >",
        "v > 1, k",
        "v > 1 and rand() > 0.5",
        "count(*) > 1",
    ],
)
def test_a_condition_that_cannot_be_is_refused_with_its_aggregate(job: LawJob, condition: str) -> None:
    job.document["operators"][0]["aggregates"] = {"n": f"count(*) filter (where {condition})"}
    job.set_parallelism(1)
    with wording.raises(InvalidRequest):
        job.loaded.graph()
