"""The benchmark of months of a small job: what its report says of figures, and that it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.studies.months.neighbours import measure_neighbours
from bench.studies.months.report import render_months, summary_of
from bench.studies.months.small_job import measure_months


def point(epoch: int, **figures: float) -> dict[str, Any]:
    epoch_ = {"wall_s": 0.1, "cpu_s": 0.1, "mean_cpu_s": 0.1, "requests": 50, "mean_requests": 55, "head_found_by": 2}
    usual = epoch_ | {"calls": 1_000, "log_entries": 3 * epoch, "log_bytes": 9_000 + 600 * epoch}
    left = {"largest_entry": 8_000, "table_log_files": 0, "table_files": 9, "job_objects": 9}
    stored = {"table_log_bytes": 0, "cache_bytes": 1_000, "database_bytes": 0}
    return {"epoch": epoch, **usual, **left, **stored, **figures}


def record(*points: dict[str, Any]) -> dict[str, Any]:
    collected = [{"epoch": 500, "wall_s": 2.5, "deleted": 7, "pruned": 3}]
    return {"points": list(points), "collected": collected, "took_s": 600.0, "epochs": points[-1]["epoch"]}


def test_the_first_point_is_not_compared() -> None:
    found = summary_of(record(point(100, requests=90, cpu_s=9.0), point(200), point(1_000, requests=55)))
    assert found["requests_grown"] == 1.1
    assert found["cpu_s_grown"] == 1.0
    assert "database_bytes_grown" not in found


def test_one_point_that_differs_is_no_growth() -> None:
    points = [point(100 * number) for number in range(1, 20)] + [point(2_000, calls=1_500, cpu_s=0.2)]
    found = summary_of(record(*points))
    assert found["calls_grown"] == found["cpu_s_grown"] == 1.0


def test_what_rises_from_point_to_point_has_grown() -> None:
    found = summary_of(record(*(point(100 * number, calls=1_000 + 10 * number) for number in range(1, 21))))
    assert found["calls_grown"] == pytest.approx(1_160 / 1_060)


def test_the_log_is_judged_by_what_each_transition_adds() -> None:
    found = summary_of(record(point(100), point(200), point(1_000)))
    assert found["log_bytes_per_transition"] == pytest.approx(200)


def test_what_has_grown_is_called_missed() -> None:
    grown = record(point(100), point(200), point(1_000, cpu_s=0.2))
    flat = record(point(100), point(200), point(1_000))
    text = render_months({"commits": {"parquet": "abc"}, "months": {"parquet": flat, "delta": grown}})
    assert "| CPU of an epoch, median | 1.00 × | 2.00 × **missed** | 1.1 × |" in text
    assert "| log, per transition | 200 B | 200 B | 250 B |" in text


def test_parallel_jobs_and_small_objects_have_their_own_parts() -> None:
    asked = {"an epoch": {"requests": 76.25, "cpu_s": 0.1}}
    run = {"wall_s": 20.04, "cpu_s": 30.0, "listing_s": 4.0, "in_line": 130, "driver_mb": 283.4, "takes": "all"}
    run["requests"] = {"list landing": 100, "get landing": 100_000, "put": 7}
    document = {
        "commits": {"parquet": "abc"},
        "months": {"parquet": record(point(100), point(200), point(1_000))},
        "neighbours": {"jobs": 50, "alone": asked, "beside": asked},
        "small_objects": {"objects": 100_000, "runs": [run], "other_busy_cores": 0.5},
    }
    text = render_months(document)
    assert "| an epoch | 76.2 requests, 100 ms | 76.2 requests, 100 ms |" in text
    assert "| all | 20.0 | 30.0 | 4.0 | 100 | 100,000 | 7 | 130 | 283 |" in text


def test_jobs_in_one_storage_are_read_alone_and_together(tmp_path: Path) -> None:
    found = measure_neighbours(tmp_path / "jobs", lambda line: None, jobs=2, epochs=2, of_others=2)
    assert found["alone"].keys() == found["beside"].keys()
    for act in ("an epoch", "list", "status"):
        assert found["beside"][act]["requests"] > 0
    assert found["beside"]["jobs"]["requests"] > found["alone"]["jobs"]["requests"]


def test_some_epochs_are_run_measured_and_held_to_the_oracle(tmp_path: Path) -> None:
    found = measure_months(3, ("parquet",), tmp_path / "months", lambda line: None)
    (only,) = found["parquet"]["points"]
    assert only["epoch"] == 3
    assert only["requests"] > 20
    assert only["calls"] > 1_000
    assert only["log_entries"] >= 3 * 2
    assert only["cache_bytes"] > 0
    assert only["head_found_by"] == 2
