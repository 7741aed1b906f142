"""A trace lists the rows that the output row depends on now, not those that later rows have replaced."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from milepost.jobmaster.tracing.origin import RowOrigin
from milepost.jobmaster.tracing.selection import newest
from milepost.jobmaster.tracing.walk import not_retracted
from milepost.protocol.records import WEIGHT_COLUMN
from milepost_testkit.jobs.sparkless.traced_job import TracedJob

_OPERATORS = """
  - {uid: parity, kind: sql, inputs: [totals], sql: "SELECT k, s % 2 AS odd FROM totals"}
  - {uid: per_parity, kind: aggregate, inputs: [parity], key: [odd], aggregates: {keys: count(*)}}
  - {uid: slim, kind: latest, inputs: [valid], key: [k], sequence_by: [t], columns: [k, v]}
sinks:
  - {name: per_parity, input: per_parity, format: parquet, path: ../lake/per_parity, mode: upsert}
  - {name: slim, input: slim, format: parquet, path: ../lake/slim, mode: upsert}
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TracedJob:
    """Key `a` has the sums 4, 5 and 9; `b` has 6, and `c` 16, then 24. Only to be read."""
    job = TracedJob.create(tmp_path_factory.mktemp("live") / "job", {"\nsinks:\n": _OPERATORS})
    times = [f"2026-01-01T10:{minute:02}:00Z" for minute in range(10)]
    rows = {
        "1.csv": [f"1,a,4,{times[0]}", f"2,b,6,{times[1]}", f"5,c,8,{times[2]}", f"5,c,8,{times[2]}"],
        "2.csv": [f"3,a,1,{times[3]}", f"5,c,8,{times[2]}"],
        "3.csv": [f"4,a,4,{times[4]}"],
    }
    for name, lines in rows.items():
        job.land("orders", name, "id,k,v,t", *lines)
        job.run()
    return job


def listed(origin: RowOrigin) -> list[tuple[str, int | None]]:
    assert origin.is_proven, origin.problem
    return [(place.object, place.line) for item in origin.inputs for place in item.places]


def test_an_aggregate_lists_no_row_of_a_key_that_has_left_its_group(job: TracedJob) -> None:
    """Key a is odd now: it was even after the first epoch."""
    origin = job.origin("per_parity", {"odd": 0}, at=2)
    assert listed(origin) == [("1.csv", 3), ("1.csv", 4), ("1.csv", 5), ("2.csv", 3)]
    assert origin.row.to_pylist() == [{"odd": 0, "keys": 2}]
    assert listed(job.origin("per_parity", {"odd": 1})) == [("1.csv", 2), ("2.csv", 2), ("3.csv", 2)]


def test_the_newest_of_rows_that_look_the_same_is_listed(job: TracedJob) -> None:
    """Its order is not in the table: the rows of 1.csv and 3.csv both have v = 4."""
    assert listed(job.origin("slim", {"k": "a"})) == [("3.csv", 2)]
    assert listed(job.origin("slim", {"k": "a"}, at=1)) == [("1.csv", 2)]


def test_a_step_counts_each_row_once(job: TracedJob) -> None:
    steps = {step.uid: step.rows for step in job.origin("per_parity", {"odd": 1}).steps}
    assert steps == {"per_parity": 1, "parity": 1, "totals": 1, "valid": 3, "orders": 3}


@pytest.mark.parametrize("window", ["{tumbling: 1h}", "{session: {gap: 20m}}"])
def test_rows_that_were_late_are_named_beside_those_of_their_window(window: str, tmp_path: Path) -> None:
    edit = {"key: [k], window: {tumbling: 1h}": f"key: [k], window: {window}"}
    job = TracedJob.create(tmp_path / "job", edit)
    job.land("payments", "1.csv", "k,paid,at", "a,1,2026-01-01T18:00:00Z")
    job.land("orders", "1.csv", "id,k,v,t", "1,a,5,2026-01-01T10:00:00Z", "2,a,5,2026-01-01T13:00:00Z")
    job.run()
    job.land("orders", "2.csv", "id,k,v,t", "3,a,5,2026-01-01T10:10:00Z", "4,a,5,2026-01-01T13:10:00Z")
    job.run()
    origin = job.origin("hourly", {"k": "a", "window_start": "2026-01-01T10:00:00Z"})
    assert listed(origin) == [("1.csv", 2)]
    assert origin.notes[0] == "not part of it: 1 row was late at operator hourly: 2.csv, line 2, read by checkpoint 2"


@pytest.mark.parametrize(
    ("weights", "left"),
    [([1, 1, -1, 1], [1, 3]), ([2, -1], [0]), ([1, 1, -3, 1], [3]), ([-1, 1], [1]), ([], [])],
    ids=str,
)
def test_a_retraction_takes_the_last_equal_row(weights: list[int], left: list[int]) -> None:
    values = ["a", "b", "a", "a"][: len(weights)] if len(weights) == 4 and weights[2] == -1 else ["a"] * len(weights)
    rows = pa.table({"k": pa.array(values, pa.string()), WEIGHT_COLUMN: pa.array(weights, pa.int64())})
    assert not_retracted(rows) == left


@pytest.mark.parametrize(
    ("greatest", "place"),
    [([7, 1, 9, 9], 3), ([None, 1, 0, None], 1), ([1.0, float("nan"), float("inf"), None], 1), ([5, 5, 5, 5], 3)],
    ids=str,
)
def test_null_is_the_smallest_value_and_nan_the_greatest(greatest: list[float | None], place: int) -> None:
    rows = pa.table({"k": ["a"] * 4, "at": pa.array(greatest, pa.float64())})
    assert newest(rows, [0, 1, 2, 3], ["k"], ["at"]) == [place]


def test_rows_without_the_column_of_their_order_all_count() -> None:
    assert newest(pa.table({"k": ["a", "a"]}), [0, 1], ["k"], ["at"]) == [0, 1]
