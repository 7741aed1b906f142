"""Percentiles of epochs are those of DuckDB's `quantile_cont` over the same figures."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.codec.records import to_json
from milepost.jobmaster import EpochFigures, Session, percentiles_of
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
NONE = dict.fromkeys(one for one in EpochFigures.__slots__)


def epoch(number: int, **figures: object) -> EpochFigures:
    return EpochFigures(**{**NONE, "checkpoint_id": number, **figures})  # type: ignore[arg-type]


@pytest.mark.long
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=60))
def test_each_percentile_equals_that_of_duckdb(values: list[int]) -> None:
    found = percentiles_of([epoch(number, rows_in=value) for number, value in enumerate(values)])
    assert list(found) == ["rows_in"]
    one, query = found["rows_in"], ", ".join(f"quantile_cont(v, {share})" for share in SHARES.values())
    with duckdb.cursor() as db:
        db.execute("CREATE OR REPLACE TEMP TABLE t (v DOUBLE)")
        db.executemany("INSERT INTO t VALUES (?)", [[value] for value in values])
        expected = db.sql(f"SELECT min(v), max(v), {query} FROM t").fetchall()[0]
    assert (one.min, one.max, one.epochs) == (*expected[:2], len(values))
    assert [getattr(one, name) for name in SHARES] == pytest.approx(expected[2:])


def test_missing_figures_of_epochs_are_not_counted() -> None:
    """Only retained checkpoints have phases. Without epochs there are no percentiles."""
    epochs = [epoch(1, duration_ms=10), epoch(2, duration_ms=30, phases={"read_ms": 7, "gate_ms": None})]
    found = percentiles_of(epochs)
    assert {name: one.epochs for name, one in found.items()} == {"duration_ms": 2, "read_ms": 1}
    assert (found["duration_ms"].p50, found["read_ms"].p99) == (20, 7)
    assert percentiles_of([]) == {}


@pytest.mark.deep
def test_plot_prints_percentiles_of_the_epochs_that_it_draws(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path, {"last: 1": "last: 9"})
    for number in range(4):
        job.land(f"{number}.csv", "k,v\n" + "1,a\n" * (number + 1))
        job.master.epochs.run(Session.cli(), SparklessRunner())
    document = milepost("plot", job.folder / "config" / "small.yaml", "--limit", "3", "--json").document()
    rows = document["percentiles"]["rows_in"]
    assert (rows["epochs"], rows["min"], rows["p50"], rows["max"]) == (3, 2, 3, 4)
    assert {"duration_ms", "state_bytes", "checkpointed_bytes", "total_ms"} <= document["percentiles"].keys()
    assert document["percentiles"] == to_json(percentiles_of(job.master.reports.series(3).epochs))
