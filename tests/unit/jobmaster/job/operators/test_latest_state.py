"""A job with `latest`: deletes in its tables, filled tables, changed specs, replays, and `state` and `diff`."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost_testkit.law.job import LawJob

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int32()), ("n", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
CURRENT = {"uid": "current", "kind": "latest", "inputs": ["a"], "key": ["k"], "sequence_by": ["n"],
           "delete_when": "v < 0", "columns": ["k", "v"]}  # fmt: skip
SINK = {"name": "current", "input": "current", "format": "parquet", "path": "../lake/current", "mode": "upsert"}
SOURCE = {
    "format": "parquet",
    "path": "../landing/a/*.parquet",
    "schema": {"k": "string", "v": "int32", "n": "int64", "t": "timestamp[us, UTC]"},
    "event_time": "t",
}
DOCUMENT: dict[str, Any] = {
    "name": "law",
    "storage": "../store",
    "sources": {"a": SOURCE},
    "operators": [CURRENT],
    "sinks": [SINK],
    "spark": {"buffer_size": "64KB"},
    "checkpointing": {"max_parallelism": 8},
}


def rows(*found: tuple[str, int, int], at: int = 0) -> pa.Table:
    return pa.table([*map(list, zip(*found, strict=True)), [at * 60_000_000] * len(found)], schema=SCHEMA)


@pytest.fixture
def job(tmp_path: Path) -> LawJob:
    """Two checkpoints, at two parallelisms: x goes, y stays, z was deleted before it came."""
    job = LawJob.create(tmp_path / "job", deepcopy(DOCUMENT))
    job.land("a", rows(("x", 1, 1), ("y", 1, 1), ("z", -1, 5)))
    job.run()
    job.land("a", rows(("x", -1, 2), ("y", 2, 2), ("z", 1, 4)))
    job.set_parallelism(3)
    job.run()
    return job


@pytest.mark.deep
def test_the_table_has_the_present_rows_and_state_the_deleted_keys_as_well(job: LawJob) -> None:
    assert job.shown("current") == [("y", 2)]
    state = {row["k"]: row for row in job.master.reports.state("current").to_pylist()}
    assert {k: row["__tombstone"] for k, row in state.items()} == {"x": True, "y": False, "z": True}
    assert state["x"]["v"] is None and state["x"]["n"] == 2
    job.check()
    job.backfill(2, ranges_per_epoch=1)
    job.check()
    job.rollback(1)
    assert job.shown("current") == [("x", 1), ("y", 1)]
    job.run()
    job.check()


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["parquet", pytest.param("delta", marks=pytest.mark.deep)])
def test_a_table_that_was_out_of_the_spec_shows_no_key_that_was_deleted_meanwhile(
    job: LawJob, table_format: str
) -> None:
    beside = SINK | {"name": "beside", "format": table_format, "path": "../lake/beside"}
    job.document["sinks"].append(beside)
    job.set_parallelism(2)
    job.land("a", rows(("v", 1, 1), ("w", 1, 1)))
    job.run()
    job.document["sinks"].remove(beside)
    job.set_parallelism(3)
    job.land("a", rows(("w", -1, 2), ("v", 3, 2)))
    job.run()
    job.document["sinks"].append(beside)
    job.set_parallelism(2)
    job.land("a", rows(("u", 1, 1)))
    job.run()
    assert job.shown("beside") == job.shown("current") == [("u", 1), ("v", 3), ("y", 2)]
    job.rollback(2)
    job.run()
    job.run()
    assert job.shown("beside") == job.shown("current") == [("u", 1), ("v", 3), ("y", 2)]
    assert (verified := job.master.reports.verify(None, deep=True)).unasked == verified.discarded == ()
    job.backfill(3, ranges_per_epoch=1)
    assert job.shown("beside") == job.shown("current") == [("u", 1), ("v", 3), ("y", 2)]


@pytest.mark.deep
def test_a_table_that_begins_later_has_the_rows_that_are_there(job: LawJob) -> None:
    job.document["sinks"].append(SINK | {"name": "again", "path": "../lake/again"})
    job.set_parallelism(2)
    job.land("a", rows(("w", 1, 1)))
    job.run()
    assert job.shown("again") == job.shown("current") == [("w", 1), ("y", 2)]


@pytest.mark.parametrize("changed", [{"sequence_by": ["v"]}, {"key": ["n"], "columns": ["n"]}, {"delete_when": None}])
def test_another_sequence_or_key_and_dropped_deletes_are_refused(job: LawJob, changed: dict[str, Any]) -> None:
    job.document["operators"][0] |= changed
    job.set_parallelism(2)
    job.land("a", rows(("z", 0, 9)))
    with pytest.raises(InvalidRequest, match="current"):
        job.run()


@pytest.mark.deep
def test_a_column_that_is_added_is_null_until_its_row_changes(job: LawJob) -> None:
    job.document["operators"][0] |= {"columns": ["k", "v", "t"]}
    job.set_parallelism(1)
    job.land("a", rows(("z", 3, 6), at=1))
    job.run()
    state = {row["k"]: row["t"] for row in job.master.reports.state("current").to_pylist()}
    assert state["y"] is None and state["z"] is not None
    assert [row[:2] for row in job.shown("current")] == [("y", 2), ("z", 3)]


def test_deletes_may_begin(tmp_path: Path) -> None:
    job = LawJob.create(tmp_path / "job", deepcopy(DOCUMENT))
    del job.document["operators"][0]["delete_when"]
    job.set_parallelism(1)
    job.land("a", rows(("x", -1, 1), ("y", 1, 1)))
    job.run()
    assert job.shown("current") == [("x", -1), ("y", 1)]
    job.document["operators"][0]["delete_when"] = "v < 0"
    job.set_parallelism(1)
    job.land("a", rows(("y", -1, 2), ("x", -5, 0)))
    job.run()
    assert job.shown("current") == [("x", -1)], "what came before stays as it was judged"
