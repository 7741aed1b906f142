"""Open tables side by side: each target has its part, the report says what was found, and who merges is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from bench.command import main
from bench.reports.reasons import TABLE_REASONS
from bench.reports.targets import Verdict
from bench.rounds import Plan, run_workload
from bench.studies.tables import COMMITS, DUCKDB, TABLE_TARGETS, TABLE_WORKLOADS, table_parts
from bench.studies.tables_report import render_tables
from bench.systems.merges.merging import CHANGES, aggregated, stage_changes
from bench.workloads.generate import write_epoch
from bench.workloads.shapes import Shape
from bench.workloads.workloads import WORKLOADS

NEEDED = {target.part for target in TABLE_TARGETS}
STAMP = {"taken": "2026-01-01T10:00:00+00:00", "commit": "abc", "took_s": 61.2, "other_busy_cores": 0.0}


def names(mode: str) -> list[str]:
    return [part.name for part in table_parts(mode)]


def epochs(walls: list[float], **figures: object) -> dict[str, Any]:
    """A system's record: one warm-up that must not count, then the given rounds."""
    rounds = [
        {
            "number": number,
            "wall_s": wall,
            "cpu_s": 2 * wall,
            "figures": {"output_bytes": 3 * 10**6, "kept_bytes": number * 10**7, **figures},
            "counted": number > 0,
        }
        for number, wall in enumerate([1000.0, *walls])
    ]
    return {"versions": {"deltalake": "1.6.6"}, "epochs": rounds}


def record(systems: dict[str, Any], workload: str = "uniform-1m", **more: Any) -> dict[str, Any]:
    count = max(len(system["epochs"]) for system in systems.values())
    shown = {"workload": TABLE_WORKLOADS[workload].to_json(), "rows": 10, "changed_keys": [100] * count}
    return {**STAMP, **shown, "systems": systems, **more}


def commits(late_s: float) -> dict[str, Any]:
    """Sixty commits, of which the last ten take so long."""
    figures = {"log_bytes": 2_000, "log_objects": 4, "log_kept": 240}
    return record({"milepost-delta": epochs([1.0] * 49 + [late_s] * 10, **figures)})


def document(parts: dict[str, Any], mode: str = "quick", **more: Any) -> dict[str, Any]:
    machine = {
        "processor": "P", "cores": 2, "memory_gb": 16, "system": "Linux", "python": "3.11", "java": "17",
    }  # fmt: skip
    return {"mode": mode, "machine": machine, "unavailable": {}, "parts": parts, **more}


def line(text: str, begins: str) -> str:
    return next(one for one in text.splitlines() if begins in one)


def verdicts(parts: dict[str, Any]) -> dict[str, Verdict]:
    return {target.says: target.judge(parts)[1] for target in TABLE_TARGETS}


def test_each_mode_has_a_part_for_its_targets_and_names_it_once() -> None:
    assert set(names("full")) >= NEEDED
    assert NEEDED - set(names("quick")) == {"append/window", "aggregating/uniform-1m"}
    assert set(names("quick")) <= set(names("full"))
    assert all(len(names(mode)) == len(set(names(mode))) for mode in ("quick", "full"))


@pytest.mark.parametrize(("better", "verdict"), [(5.0, "met |"), (4.9, "**missed**: ")])
def test_the_better_of_sparks_two_ways_is_what_ours_is_measured_against(better: float, verdict: str) -> None:
    systems = {
        "milepost-delta": epochs([1.0] * 3),
        "spark-delta": epochs([9.0] * 3),
        "spark-delta-vectors": epochs([better] * 3),
        "delta-rs": epochs([2.0] * 3),
    }
    text = render_tables(document({"delta/uniform-1m": record(systems)}))
    assert f"| ≥ 5 × | {better:.2f} × | {better:.2f}–{better:.2f} | {verdict}" in line(text, "Delta, 1 M keys: Spark's")
    assert "| not measured |" in line(text, "Iceberg, 1 M keys: Spark's")
    assert "| delta-rs `merge` | 2.00 | 2.00–2.00 | 2.00 | 4.00 | 3.0 | 30.0 | – |" in text


@pytest.mark.parametrize(("ours", "verdict"), [(1.4, Verdict.MET), (1.41, Verdict.MISSED)])
def test_an_append_is_measured_against_our_own_table(ours: float, verdict: Verdict) -> None:
    systems = {"milepost": epochs([1.0] * 3), "milepost-delta": epochs([ours] * 3)}
    found = verdicts({"append/window": record(systems, "window")})
    assert found["windows appended on Delta, against our own table"] is verdict


@pytest.mark.parametrize(("late_s", "verdict"), [(1.1, Verdict.MET), (1.2, Verdict.MISSED)])
def test_the_last_commits_are_measured_against_the_first_warm_ones(late_s: float, verdict: Verdict) -> None:
    parts = {"commits/delta": commits(late_s)}
    assert verdicts(parts)["Delta, time per commit: the last ones against the first"] is verdict
    assert verdicts(parts)["Delta, objects of log per commit: the last ones against the first"] is Verdict.MET
    text = render_tables(document(parts))
    assert line(text, "| Milepost, Delta, 51 to 60 |").startswith(
        f"| Milepost, Delta, 51 to 60 | {late_s:.3f} | 2,000.0 | 4.0 | 240 | 590.0 |"
    )


def test_an_unmeasured_target_is_no_success() -> None:
    assert set(verdicts({}).values()) == {Verdict.UNKNOWN}
    text = render_tables(document({}, unavailable={".venv-spark-readers": "no answer"}))
    assert "* **.venv-spark-readers** could not be built here: no answer" in text
    assert line(text, "windows appended on Delta").endswith("| only by `make bench-tables MODE=full` |")


def test_a_part_with_a_wrong_result_has_no_times() -> None:
    reason = "delta-rs, workload uniform-1m: expected 3 rows, got 2"
    text = render_tables(document({"delta/uniform-1m": STAMP | {"failed": reason}}))
    assert f"* **delta/uniform-1m** was measured without a result: {reason}" in text
    assert "### uniform-1m" not in text


def test_phases_are_those_of_our_own_tables() -> None:
    systems = {name: epochs([1.0], phases={"stage_ms": 7}) for name in ("milepost", "milepost-delta")}
    text = render_tables(document({"ours/uniform-1m": record(systems)}))
    assert "| stage | 7 | 7 |" in text and "| 3.0 | 10.0 |" in line(text, "| Milepost, Delta | 1.00 |")


def test_every_reason_is_of_a_target() -> None:
    assert set(TABLE_REASONS) <= {target.says for target in TABLE_TARGETS}


def test_the_full_mode_follows_three_hundred_commits() -> None:
    assert COMMITS == 300


def test_given_rows_are_those_that_the_statement_would_aggregate(tmp_path: Path) -> None:
    workload = replace(WORKLOADS["keyed-10k"], shape=Shape(keys=50, rows=500, files=2))
    write_epoch(workload.shape, 1, tmp_path / "epoch")
    stage_changes(workload, tmp_path / "epoch", tmp_path / "staged")
    given = f"SELECT * FROM read_parquet('{tmp_path / 'staged' / CHANGES}')"
    expected = aggregated(workload, f"read_parquet('{tmp_path / 'epoch'}/*.parquet')")
    assert duckdb.sql(f"({given} EXCEPT ALL {expected}) UNION ALL ({expected} EXCEPT ALL {given})").fetchall() == []
    assert duckdb.sql(f"SELECT sum(bids) FROM ({given})").fetchall() == [(500,)]


def test_each_way_to_merge_publishes_the_answer(tmp_path: Path) -> None:
    """Rule: no time is compared with one of a system whose table is not the answer; new keys and known ones."""
    workload = replace(TABLE_WORKLOADS["uniform-1m"], shape=Shape(keys=2_000, rows=1_500, files=2, prefill=False))
    systems = ("delta-rs", *DUCKDB)
    found = run_workload(workload, systems, Plan(1, 2), tmp_path, lambda _: None)
    assert 1_500 < found["rows"] < 2_000
    for name in systems:
        sizes = [epoch["figures"]["kept_bytes"] for epoch in found["systems"][name]["epochs"]]
        assert sizes == sorted(sizes) and sizes[0] > 0
    logs = [epoch["figures"]["log_objects"] for epoch in found["systems"]["delta-rs"]["epochs"]]
    assert logs == [1, 1, 1], "a commit is one object of the log"


def test_a_part_that_no_mode_has_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", "--only", "hudi", "--results", str(tmp_path), "--folder", str(tmp_path)]) == 2
    assert "no part of the quick mode begins with hudi: delta/uniform-1m, iceberg/" in capsys.readouterr().err
    assert main(["tables", "--report", "--results", str(tmp_path), "--folder", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []
