"""The rows that a trace lists make the row of the table, whatever its operator; DuckDB makes it of them too."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from milepost.language.times import python_rows
from milepost_testkit.jobs.sparkless.traced_job import QUERIES, TracedJob, remade


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TracedJob:
    """A job with random rows. Only to be read."""
    return TracedJob.with_random_rows(tmp_path_factory.mktemp("traced") / "job", 1)


@pytest.mark.long
@pytest.mark.parametrize("sink", QUERIES)
def test_the_listed_rows_alone_make_the_row_in_duckdb(job: TracedJob, sink: str) -> None:
    _hold(job, sink, count=3, seed=0)


@pytest.mark.deep
@pytest.mark.parametrize("sink", QUERIES)
@pytest.mark.parametrize("seed", range(5))
def test_the_listed_rows_alone_make_each_of_300_random_rows(sink: str, seed: int, tmp_path: Path) -> None:
    _hold(TracedJob.with_random_rows(tmp_path / "job", 100 + seed), sink, count=10, seed=seed)


def _hold(job: TracedJob, sink: str, count: int, seed: int) -> None:
    rows = python_rows(job.master.reports.read(sink))
    assert rows, f"table {sink} is empty: the test would prove nothing"
    for row in random.Random(seed).choices(rows, k=count):
        origin = job.origin(sink, row)
        assert origin.is_proven, (sink, row, origin.problem)
        assert row in remade(sink, origin), (sink, row, origin.inputs)
        for item in origin.inputs:
            assert {one["k"] for one in item.listed.to_pylist()} <= {row["k"]}, "a row of another key is listed"
            for place, values in zip(item.places, item.listed.to_pylist(), strict=True):
                line = (job.folder / "landing" / item.source / place.object).read_text().splitlines()[place.line - 1]
                first = str(values.get("id", values.get("paid")))
                assert first in line.split(","), f"{place} is another line: {line}"
