"""RESULTS.md says what was measured, and as plainly what was missed, failed or not measured."""

from __future__ import annotations

from typing import Any

import pytest

from bench.parts import FUNCTION, LANGUAGE, MOST_KEYS, SQL
from bench.reports.plots import PLOTS, series_of
from bench.reports.reasons import REASONS
from bench.reports.report import render
from bench.reports.targets import TARGETS, Verdict
from bench.workloads.workloads import WORKLOADS

STAMP = {"taken": "2026-01-01T10:00:00+00:00", "commit": "abc", "took_s": 61.2}


def epochs(walls: list[float], **figures: object) -> dict[str, Any]:
    """A system's record: one warm-up that must not count, then the given rounds."""
    rounds = [
        {
            "number": number,
            "wall_s": wall,
            "cpu_s": 2 * wall,
            "memory_bytes": 1e9,
            "largest_task_bytes": 2e8,
            "peak_task_bytes": 3e8,
            "figures": {"state_bytes": 600, "output_bytes": 10**6, **figures},
            "counted": number > 0,
        }
        for number, wall in enumerate([1000.0, *walls])
    ]
    return {"versions": {"pyarrow": "26.0.1"}, "epochs": rounds}


def ours(walls: list[float]) -> dict[str, Any]:
    phases = {"plan_ms": 100, "begin_ms": 10, "restore_ms": 70, "sync_ms": 10, "async_ms": 40, "commit_ms": 30}
    return epochs(walls, phases=phases | {"notify_ms": 40, "subsume_ms": 20, "other_ms": None})


def record(workload: str, systems: dict[str, Any], *, busy: float = 0.02, **more: Any) -> dict[str, Any]:
    count = max(len(system["epochs"]) for system in systems.values())
    return {
        **STAMP,
        "workload": WORKLOADS[workload].to_json(),
        "rows": 10,
        "changed_keys": [100] * count,
        "input_bytes": [1] * count,
        "other_busy_cores": busy,
        "probes": {},
        "systems": systems,
        **more,
    }


def document(mode: str = "full", **parts: Any) -> dict[str, Any]:
    machine = {
        "processor": "P", "cores": 2, "memory_gb": 16, "system": "Linux", "python": "3.11", "java": "17",
    }  # fmt: skip
    named = {name.replace("__", "/").replace("_", "-"): one for name, one in parts.items()}
    return {"mode": mode, "machine": machine, "unavailable": {}, "parts": named}


def line(text: str, begins: str) -> str:
    return next(one for one in text.splitlines() if begins in one)


def judged(parts: dict[str, Any]) -> dict[str, Verdict]:
    return {target.says: target.judge(parts)[1] for target in TARGETS}


def test_a_missed_target_is_stated_as_missed_with_its_figure() -> None:
    """The target is 8 times; the better of the two stores takes 6 times as long. A hand-written reason follows."""
    systems = {"milepost": ours([1.0] * 3), "spark-hdfs": epochs([6.0] * 3), "spark-rocksdb": epochs([9.0] * 3)}
    text = render(document(workload__keyed_1m=record("keyed-1m", systems)))
    what = "1 M keys: Structured Streaming's better store"
    assert line(text, what) == f"| {what} | ≥ 8 × | 6.00 × | 6.00–6.00 | **missed**: {REASONS[what]} |"


def test_a_target_that_is_met_says_so_and_only_counted_rounds_count() -> None:
    systems = {"milepost": ours([1.0] * 3), "spark-hdfs": epochs([8.0] * 3)}
    text = render(document(workload__keyed_1m=record("keyed-1m", systems)))
    assert "| 8.00 × | 8.00–8.00 | met |" in line(text, "1 M keys: Structured")
    assert "| 6.00 B | 6.00–6.00 | met |" in line(text, "1 M keys: state bytes per changed key")


@pytest.mark.parametrize(("wall", "verdict"), [(2.0, Verdict.MET), (2.01, Verdict.MISSED)])
def test_the_limit_is_the_best_engine_and_bounds_from_above(wall: float, verdict: Verdict) -> None:
    systems = {"milepost": ours([wall] * 3), "limit-numpy": epochs([1.0] * 3), "limit-duckdb": epochs([1.5] * 3)}
    parts = {"workload/keyed-1m": record("keyed-1m", systems)}
    assert judged(parts)["1 M keys: ours against the bare limit"] is verdict


def test_every_reason_is_of_a_target_and_is_not_printed_of_one_that_is_met() -> None:
    assert set(REASONS) <= {target.says for target in TARGETS}
    systems = {"milepost": ours([1.0] * 3), "spark-hdfs": epochs([8.0] * 3)}
    text = render(document(workload__keyed_1m=record("keyed-1m", systems)))
    assert line(text, "1 M keys: Structured").endswith("| met |")


def test_of_a_target_that_the_quick_mode_has_no_part_for_the_full_mode_is_named() -> None:
    quick, full = render(document("quick")), render(document("full"))
    assert line(quick, "after 45 epochs: availableNow").endswith("| only by `make bench MODE=full` |")
    assert line(full, "after 45 epochs: availableNow").endswith("| not measured |")
    assert line(quick, "1 M keys: Structured").endswith("| not measured |")


def test_parts_of_several_runs_are_distinguished() -> None:
    one, other = record("keyed-1m", {"milepost": ours([1.0])}), record("window", {"milepost": ours([1.0])})
    later = STAMP | {"taken": "2026-01-02T11:00:00+00:00", "commit": "def+"}
    text = render(document(workload__keyed_1m=one, workload__window=other | later))
    assert "16 GB, Linux at 2 commits; when each part was taken" in text
    assert "| workload/keyed-1m | 2026-01-01 10:00:00 | abc | 61 | 0.02 |" in text
    assert "| workload/window | 2026-01-02 11:00:00 | def+ | 61 | 0.02 |" in text
    assert "16 GB, Linux at commit abc." in render(document(workload__keyed_1m=one))


def test_an_unmeasured_target_is_no_success() -> None:
    assert set(judged({}).values()) == {Verdict.UNKNOWN}
    reports = [render(document(mode)) for mode in ("full", "language", "sql")]
    assert sum(report.count("| – | – | not measured |") for report in reports) == len(TARGETS)


def test_every_target_of_a_whole_run_is_judged() -> None:
    """Each of them reads figures that the parts of the full mode have."""
    every = {
        "milepost": ours([1.0]),
        "spark-hdfs": epochs([20.0]),
        "flink-hashmap": epochs([20.0]),
        "limit-numpy": epochs([1.0]),
    }
    processes = {f"milepost-{kind}": ours([1.0]) for kind in ("process", "served")}
    processes |= {f"spark-hdfs-{kind}": epochs([20.0]) for kind in ("process", "served")}
    empty = {"status": "empty", "wall_s": 0.01, "requests": {"get": 4, "list": 2}, "spark_jobs": 0}
    parts = {f"workload/{name}": record(name, every, probes={"empty": empty}) for name in WORKLOADS}
    without_flink = {name: one for name, one in every.items() if not name.startswith("flink-")}
    parts["workload/keyed-5m"] = record("keyed-5m", without_flink, probes={"empty": empty})
    parts["flink/keyed-5m"] = record("keyed-5m", {name: every[name] for name in ("milepost", "flink-hashmap")})
    parts |= {f"process/{name}": record(name, processes) for name in ("keyed-1m", "keyed-5m")}
    parts["aged/keyed-1m"] = record("keyed-1m", processes)
    cold = ours([2.0])["epochs"][1]
    decode = {"wall_s": 0.5, "bytes": 10, "files": 1, "rows": 5}
    parts["restore/keyed-5m"] = {
        **STAMP,
        "rounds": [{"small_s": 0.9, "warm_s": 1.0, "cold_s": 2.0, "decode": decode, "cold": cold}],
        "other_busy_cores": 0.0,
    }
    beside = every | {"milepost-function": ours([1.5]), "milepost-plain": ours([0.9])}
    parts |= {f"language/{name}": record(name, beside) for name in (*LANGUAGE, FUNCTION)}
    parts |= {f"sql/{name}": record(name, every) for name in SQL}
    far = {"milepost-far": ours([1.0]), "spark-hdfs-far": epochs([20.0])}
    parts |= {f"far/{name}": record(name, far) for name in ("keyed-10k", "keyed-1m")}
    executors = {"milepost-executor": ours([2.0]), "milepost-executors": ours([1.0])}
    parts |= {f"executors/{name}": record(name, executors) for name in ("keyed-1m", "keyed-5m")}
    rewriting = ours([1.0, 1.0, 1.4])
    rewriting["epochs"][3]["figures"] = rewriting["epochs"][3]["figures"] | {"state_bytes": 1_000}
    parts["rewrite/keyed-1m"] = record("keyed-1m", {"milepost": rewriting})
    limited = {"milepost": ours([1.0]), "milepost:worker_memory_mb=512": ours([2.0])}
    parts["memory/512 MB"] = record("keyed-5m", limited)
    verdicts = judged(parts)
    assert Verdict.UNKNOWN not in verdicts.values()
    missed = [says for says, verdict in verdicts.items() if verdict is Verdict.MISSED]
    assert missed == ["checkpoint overhead, 1 M keys"]  # 150 ms of 1 s
    text = render(document(**{name.replace("/", "__").replace("-", "_"): one for name, one in parts.items()}))
    assert "an epoch of 2.00 s instead of 1.00 s (`show` names 70 ms" in text and "| sync | 10 | 10 |" in text
    assert "0 Spark jobs, 6 store requests (4 get, 2 list)" in text


def test_targets_in_seconds_and_bytes_are_judged_by_our_figure_alone() -> None:
    systems = {"milepost": ours([4.0, 5.1, 5.2]), "flink-hashmap": epochs([30.0] * 3)}
    parts = {"sql__updates_join": record("updates-join", systems), "sql__hot_key": record("hot-key", systems)}
    text = render(document("sql", **parts))
    assert "| ≤ 5 s | 5.10 s | 4.55–5.15 | **missed**" in line(text, "1 M changes against 5 M rows: an epoch")
    assert "| ≤ 2 GB | 0.30 GB | 0.30–0.30 | met |" in line(text, "one key of 1 M rows: peak memory")
    assert text.startswith("# Joins over updates and SQL beside PyFlink") and "### sql/hot-key: join over" in text


def test_an_epoch_that_rewrites_the_base_is_recognized_by_its_state() -> None:
    """Twice as much state as the others write, in 1.6 times their time."""
    systems = {"milepost": ours([1.0, 1.0, 1.6])}
    systems["milepost"]["epochs"][3]["figures"] = systems["milepost"]["epochs"][3]["figures"] | {"state_bytes": 1_200}
    verdicts = judged({"rewrite/keyed-1m": record("keyed-1m", systems)})
    assert [says for says, verdict in verdicts.items() if verdict is Verdict.MISSED] == [
        "1 M keys: an epoch that writes the base anew, against one that writes changes"
    ]


def test_of_so_many_keys_the_report_says_how_long_and_in_how_many_slices() -> None:
    many = record("keyed-1m", {"milepost": epochs([2.0, 3.0], slices=4, runs=6)})
    text = render(document(**{f"keys__{MOST_KEYS}": many}))
    assert "took 1000 s, each subtask in 4 slices; those behind it of 1 M rows 2.0 s and 3.0 s, in 4." in text
    assert "The state has 6 runs; all processes held 1000 MB at most, the largest Python task 200 MB." in text


def test_a_run_on_a_busy_machine_is_marked_as_a_smoke_run() -> None:
    systems = {"milepost": ours([1.0])}
    calm = render(document(workload__keyed_1m=record("keyed-1m", systems)))
    loaded = render(document(workload__keyed_1m=record("keyed-1m", systems, busy=1.4)))
    assert "smoke run" not in calm
    assert "**A smoke run, not a measurement**: in 1 of 1 parts other processes kept up to 1.4 cores busy" in loaded


def test_of_a_part_with_a_wrong_result_the_reason_is_printed_and_no_time() -> None:
    reason = "spark-hdfs, workload window: expected 3 rows, got 2"
    text = render(document(workload__window=STAMP | {"failed": reason}))
    assert f"* **workload/window** was measured without a result: {reason}" in text
    assert "### window" not in text and "not measured" in line(text, "tumbling window")


def test_a_system_that_cannot_be_built_is_named_with_the_reason() -> None:
    text = render({**document(), "unavailable": {".venv-flink": "ERROR: no matching distribution"}})
    assert "* **.venv-flink** could not be built here: ERROR: no matching distribution" in text


def test_a_plot_has_a_point_per_part_and_none_of_a_failed_one() -> None:
    parts = {
        "rows/300000": record("keyed-1m", {"milepost": ours([3.0] * 3)}),
        "rows/100000": record("keyed-1m", {"milepost": ours([1.0] * 3)}),
        "rows/1000000": STAMP | {"failed": "x"},
    }
    plots = {plot.group: plot for plot in PLOTS}
    rows = {"Milepost": [(100_000.0, 1.0, 600.0), (300_000.0, 3.0, 600.0)]}
    assert series_of(plots["rows"], parts) == rows
    parts["workload/keyed-1m"] = record("keyed-1m", {"milepost": ours([2.0]), "flink-rocksdb": epochs([9.0])})
    assert series_of(plots["rows"], parts) == {"Milepost": [*rows["Milepost"], (1_000_000.0, 2.0, 600.0)]}
    assert series_of(plots["keys"], parts) == {}, "one point is no line"


def test_a_plot_of_epochs_leaves_out_each_systems_first_which_fills_the_state_or_catches_up() -> None:
    late = epochs([7.0, 8.0, 9.0])
    late["epochs"] = late["epochs"][1:]
    parts = {
        "aged/keyed-1m": record("keyed-1m", {"milepost-served": ours([3.0, 4.0, 5.0]), "spark-hdfs-process": late})
    }
    assert series_of(next(plot for plot in PLOTS if plot.group == "aged"), parts) == {
        "Milepost, running server": [(2.0, 3.0, 600.0), (3.0, 4.0, 600.0), (4.0, 5.0, 600.0)],
        "availableNow, cold JVM": [(3.0, 8.0, 600.0), (4.0, 9.0, 600.0)],
    }
