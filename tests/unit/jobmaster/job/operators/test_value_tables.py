"""A job with a second aggregate that retracts rows from min, max, arg_max and count(distinct …)."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.load.lint import lint_report
from milepost_testkit import wording
from milepost_testkit.law.job import LawJob

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.float64()), ("b", pa.bool_())])
CALLS = {"low": "min(v)", "high": "max(v)", "values": "count(distinct v)", "of": "arg_max(k, n)", "some": "any(once)"}
FIRST = {"uid": "first", "kind": "aggregate", "inputs": ["a"], "key": ["k"],
         "aggregates": {"v": "max(v)", "n": "count(*)", "b": "every(b)", "once": "any(b)"}}  # fmt: skip
SECOND = {"uid": "second", "kind": "aggregate", "inputs": ["first"], "key": ["b"], "aggregates": CALLS}
TYPES = {"k": "string", "v": "float64", "b": "bool"}
DOCUMENT: dict[str, Any] = {
    "name": "law",
    "storage": "../store",
    "sources": {"a": {"format": "parquet", "path": "../landing/a/*.parquet", "schema": TYPES}},
    "operators": [FIRST, SECOND],
    "sinks": [{"name": "shown", "input": "second", "format": "parquet", "path": "../lake/shown", "mode": "upsert"}],
    "spark": {"buffer_size": "64KB"},
    "checkpointing": {"max_parallelism": 8},
}  # fmt: skip


def rows(*values: tuple[str, float | None, bool]) -> pa.Table:
    columns = zip(*values, strict=True)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


@pytest.fixture
def job(tmp_path: Path) -> LawJob:
    """Keys x, y and z arrive. Then x, which has the greatest value, moves from b = true to b = false."""
    job = LawJob.create(tmp_path / "job", deepcopy(DOCUMENT))
    job.land("a", rows(("x", 9.0, True), ("y", 1.0, True), ("z", 1.0, True), ("n", None, True)))
    job.run()
    job.set_parallelism(3)
    job.land("a", rows(("x", 9.0, False), ("y", -0.0, True), ("y", 0.5, True)))
    job.run()
    return job


@pytest.mark.deep
def test_a_key_that_moves_takes_its_values_with_it(job: LawJob) -> None:
    """n, the count of `first`, is 3 for y, and 1 for z and n."""
    assert job.shown("shown") == [
        (False, 9.0, 9.0, 1, "x", True),
        (True, 1.0, 1.0, 1, "y", True),
    ]
    job.check()
    job.backfill(2, ranges_per_epoch=1)
    job.check()
    job.rollback(1)
    job.land("a", rows(("z", 4.0, True)))
    job.run()
    job.check()


def test_state_shows_each_value_and_its_count(job: LawJob) -> None:
    shown = {row["b"]: row for row in job.master.reports.state_values("second").to_pylist()}
    assert shown[True] == {"b": True, "low": 1.0, "high": 1.0, "values": 1, "of": "y", "some": True}
    values = job.master.reports.state_values("second.values(v)").to_pylist()
    assert {(row["b"], row["value"]): row["rows"] for row in values} == {(True, 1.0): 2, (False, 9.0): 1}
    picked = job.master.reports.state_values("second.values(k by `n`)").to_pylist()
    assert sorted(row["by"] for row in picked if row["b"]) == [1, 1, 3]


def test_lint_states_the_bound_of_each_table(job: LawJob) -> None:
    (second,) = [node for node in lint_report(job.loaded)["nodes"] if node["uid"] == "second"]
    assert [state["table"] for state in second["state"]] == ["", "values(v)", "values(k by `n`)"]
    wording.matches("explain", [f"{state['holds']}: {state['bound']}" for state in second["state"]])


@pytest.mark.parametrize("calls", [{"low": "min(v)"}, {**CALLS, "most": "max(n)"}, {**CALLS, "first": "arg_min(k, n)"}])
def test_an_aggregate_without_stored_values_is_refused_before_planning(job: LawJob, calls: dict[str, str]) -> None:
    """A value table is added or dropped, or lacks the values of existing keys: that needs a new uid or a backfill."""
    job.document["operators"][1]["aggregates"] = calls
    job.set_parallelism(2)
    job.land("a", rows(("z", 0.0, True)))
    with pytest.raises(InvalidRequest, match="second"):
        job.run()
