"""A job with `count(distinct x)`: its tables of values, what is forgotten, replays, and changed specs."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost_testkit.law.job import LawJob

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.float64()), ("b", pa.bool_()), ("t", pa.timestamp("us", "UTC"))])
CALLS = {"n": "count(*)", "values": "count(distinct v)", "some": "count(distinct v) filter (where b)"}
TOTALS = {"uid": "totals", "kind": "aggregate", "inputs": ["a"], "key": ["k"], "aggregates": CALLS}
HOURLY = {"uid": "hourly", "kind": "window", "inputs": ["a"], "key": ["k"], "window": {"tumbling": "1h"},
          "aggregates": {"values": "count(distinct v)"}}  # fmt: skip
TYPES = {"k": "string", "v": "float64", "b": "bool", "t": "timestamp[us, UTC]"}
DOCUMENT: dict[str, Any] = {
    "name": "law",
    "storage": "../store",
    "sources": {
        "a": {"format": "parquet", "path": "../landing/a/*.parquet", "schema": TYPES, "event_time": "t",
              "watermark_delay": "0s"}
    },
    "operators": [TOTALS, HOURLY],
    "sinks": [
        {"name": "totals", "input": "totals", "format": "parquet", "path": "../lake/totals", "mode": "upsert"},
        {"name": "hourly", "input": "hourly", "format": "parquet", "path": "../lake/hourly", "mode": "append"},
    ],
    "spark": {"buffer_size": "64KB"},
    "checkpointing": {"max_parallelism": 8},
}  # fmt: skip
NAN = float("nan")
MINUTE_US = 60_000_000


def rows(*found: tuple[str, float | None, bool | None, int]) -> pa.Table:
    columns = list(zip(*found, strict=True))
    times = [minute * MINUTE_US for minute in columns[3]]
    return pa.table([*map(list, columns[:3]), pa.array(times, SCHEMA.field("t").type)], schema=SCHEMA)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> LawJob:
    """Two checkpoints, at two parallelisms."""
    job = LawJob.create(tmp_path_factory.mktemp("prepared") / "job", deepcopy(DOCUMENT))
    job.land("a", rows(("x", 1.0, True, 1), ("x", 1.0, False, 2), ("x", None, True, 3), ("y", NAN, None, 4)))
    job.run()
    job.land("a", rows(("x", 1.0, True, 5), ("x", 0.0, True, 6), ("x", -0.0, False, 7), ("y", NAN, True, 70)))
    job.set_parallelism(3)
    job.run()
    return job


@pytest.fixture
def job(prepared: LawJob, tmp_path: Path) -> LawJob:
    return prepared.copy_to(tmp_path / "job")


@pytest.mark.deep
def test_values_count_once_whatever_epoch_and_subtask_they_come_to(job: LawJob) -> None:
    """Null counts for nothing, one NaN and one zero for all of theirs; a filter counts the values of its own rows."""
    assert job.shown("totals") == [("x", 6, 2, 2), ("y", 2, 1, 1)]
    assert [row[-1] for row in job.shown("hourly")] == [2, 1]
    job.check()
    job.backfill(2, ranges_per_epoch=1)
    job.check()


def test_state_shows_counts_and_the_values_behind_them(job: LawJob) -> None:
    totals = job.master.reports.state_values("totals").sort_by("k").to_pylist()
    assert totals[0] == {"k": "x", "n": 6, "values": 2, "some": 2}
    values = job.master.reports.state_values("totals.distinct(v)").to_pylist()
    assert sorted(row["value"] for row in values if row["k"] == "x") == [0.0, 1.0]
    assert job.master.reports.state("totals.distinct(v where `b`)").num_rows == 3


def test_a_diff_says_which_values_came(job: LawJob) -> None:
    found = {one.name: one.changes.table.to_pylist() for one in job.master.reports.diff(1, 2) if one.kind == "operator"}
    assert found["totals.distinct(v)"] == [{"change": "added", "k": "x", "value": 0.0}]


@pytest.mark.long
def test_the_values_of_a_window_are_forgotten_with_it(job: LawJob) -> None:
    """The watermark is at minute 70: of [0, 60) nothing is kept, of [60, 120) one value."""
    assert job.master.reports.state("hourly").num_rows == 1
    assert job.master.reports.state("hourly.distinct(v)").num_rows == 1


@pytest.mark.parametrize(
    "calls", [{"n": "count(*)"}, {**CALLS, "more": "count(distinct k)"}, {**CALLS, "values": "count(distinct k)"}]
)
def test_another_column_or_none_is_refused_before_anything_is_planned(job: LawJob, calls: dict[str, str]) -> None:
    """Values that were not kept cannot be counted, and tables are not left behind unseen."""
    job.document["operators"][0]["aggregates"] = calls
    job.set_parallelism(2)
    job.land("a", rows(("z", 0.0, True, 80)))
    with pytest.raises(InvalidRequest, match="totals"):
        job.run()
