"""Trace rejected rows to their rule and object, and name the rules that may have dropped an absent row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from milepost.errors import NotFound
from milepost.jobmaster.tracing.tracing import TraceLimits
from milepost_testkit.jobs.sparkless.traced_job import TracedJob

_NOT_ABOVE_9 = "expect_column_values_to_be_between(v)"
_NO_Z = "expect_column_values_to_not_match_regex(k)"
_RULES = [
    {"type": "expect_column_values_to_be_between", "column": "v", "max_value": 9, "on_fail": "quarantine"},
    {"type": "expect_column_values_to_not_match_regex", "column": "k", "regex": "^z$", "on_fail": "drop"},
]
_SINKS = """\
sinks:
  - {name: valid, input: valid, format: parquet, path: ../lake/valid, mode: append}
  - {name: refused, input: valid.rejected, format: parquet, path: ../lake/refused, mode: append}
"""
_HEADER = "id,k,v,t"


@pytest.fixture
def job(tmp_path: Path) -> TracedJob:
    suite = f"quality:\n  - {{sink: valid, expectations: {json.dumps(_RULES)}}}\n"
    job = TracedJob.create(tmp_path / "job", {"sinks:\n": _SINKS, "checkpointing:": f"{suite}checkpointing:"})
    twice, time = "3,a,30,2026-01-01T10:20:00Z", "2026-01-01T10:00:00Z"
    job.land("orders", "1.csv", _HEADER, f"1,a,5,{time}", f"2,a,20,{time}", twice, f"4,z,1,{time}")
    job.run()
    job.land("orders", "2.csv", _HEADER, twice, f"5,b,20,{time}")
    job.run()
    return job


def test_a_rejected_row_is_traced_by_its_rule_and_object(job: TracedJob) -> None:
    origin = job.origin("refused", {"_rule": _NOT_ABOVE_9, "_object": "1.csv", "v": 20})
    assert origin.is_proven, origin.problem
    (row,) = origin.row.to_pylist()
    assert (row["id"], row["_rule"], row["_object"]) == (2, _NOT_ABOVE_9, "1.csv")
    assert [(place.object, place.line) for item in origin.inputs for place in item.places] == [("1.csv", 3)]


@pytest.mark.long
@pytest.mark.parametrize("values", [{"id": 3}, {"id": 3, "_object": "2.csv"}])
def test_equal_rejected_rows_of_two_objects_are_traced_together(job: TracedJob, values: dict[str, object]) -> None:
    origin = job.origin("refused", values)
    assert origin.is_proven, origin.problem
    assert origin.copies == 2
    (row,) = origin.row.to_pylist()
    assert row["_object"] == values.get("_object", "1.csv; 2.csv")


@pytest.mark.long
def test_a_row_that_a_rule_dropped_is_not_found_and_the_rule_is_named(job: TracedJob) -> None:
    with pytest.raises(NotFound) as absent:
        job.origin("valid", {"id": 4})
    assert absent.value.hint == (
        "a rule may have rejected it: check table refused; "
        f"rule {_NO_Z} (on_fail: drop) may have dropped it, and a dropped row is in no table"
    )


def test_copies_are_not_proven_if_some_were_published_before_the_cut(job: TracedJob) -> None:
    origin = job.origin("refused", {"id": 3}, limits=TraceLimits(since=1))
    assert not origin.is_proven
    assert origin.problem == "1 of 2 copies were published by checkpoint 1, before the cut; its input is not listed"
