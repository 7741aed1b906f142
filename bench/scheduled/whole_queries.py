"""The same job as one Airflow task that runs `availableNow` of Structured Streaming, compared with our DAG."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from bench.machine import OthersMeter
from bench.rounds import Say, input_of
from bench.scheduled.instance import HERE, BenchAirflow, Files
from bench.systems.contract import Folders, link_files
from bench.systems.milepost import write_spec
from bench.systems.streaming import Streaming
from bench.workloads.equality import Answer
from bench.workloads.workloads import WORKLOADS, Workload
from scripts.stack import REMOTE_VARIABLE

SIZES = {"100k": ("keyed-100k", 100_000), "1m": ("keyed-1m", 1_000_000)}
"""Rows per epoch; as many keys, all of which the first epoch has."""

QUERIES = "MILEPOST_BENCH_QUERIES"
OURS, OWN, SERVED = "milepost", "available_now_own", "available_now_served"
"""A Spark of the task's own, as most have it, or the server that our job runs on."""

SYSTEMS = (OURS, OWN, SERVED)


def measure_whole_queries(rounds: int, folder: Path, say: Say) -> dict[str, Any]:
    """Run the epochs of each size on each system, in turns. Returns the record, whose results were compared.

    Raises: RuntimeError: a run failed. WrongResult: a table is not the answer.
    """
    shutil.rmtree(folder, ignore_errors=True)
    cases = {f"{system}_{size}": _Case(system, size, folder / "work") for size in SIZES for system in SYSTEMS}
    queries = {name: case.words() for name, case in cases.items() if case.system != OURS}
    files = Files(
        specs={f"{name}.yaml": case.spec(name) for name, case in cases.items() if case.system == OURS},
        dags={"query_dags.py": (HERE / "query_dags.py").read_text(encoding="utf-8")},
    )
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    with BenchAirflow(folder / "airflow", files, {QUERIES: json.dumps(queries)}, {}) as airflow:
        airflow.wait_for_dags(case.dag_id(name) for name, case in cases.items())
        others = OthersMeter()
        for turn in range(rounds + 2):
            for name, case in cases.items():
                case.land(turn, say)
                before = airflow.cpu_s()
                run = airflow.run(case.dag_id(name)) | {"cpu_s": 0.0}
                run["cpu_s"] = airflow.cpu_s() - before
                say(f"whole queries: {name}, epoch {turn}: {run['wall_s']:.2f} s")
                runs[name] += [run] if turn > 1 else []
        busy = others.cores()
        for name, case in cases.items():
            case.check(name)
    return {"runs": runs, "rounds": rounds, "other_busy_cores": busy}


class _Case:
    """One system at one size: its folders and its input."""

    def __init__(self, system: str, size: str, folder: Path) -> None:
        workload, rows = SIZES[size]
        base = WORKLOADS[workload]
        self.system = system
        self.workload: Workload = replace(base, shape=replace(base.shape, rows=rows))
        self.folders = Folders(folder / f"{system}-{size}")
        self._inputs = folder / "inputs"
        self._landed: list[Path] = []
        self.folders.landing.mkdir(parents=True)

    def dag_id(self, name: str) -> str:
        return f"{name}__epoch" if self.system == OURS else name

    def spec(self, name: str) -> str:
        """The text of our job's spec, under this name."""
        spark = {"master": "local[2]", "remote": f"${{env:{REMOTE_VARIABLE}:-}}", "parallelism": 2}
        file = write_spec(self.workload, self.folders, spark=spark, retained=10)
        document = json.loads(file.read_text(encoding="utf-8")) | {"name": name}
        file.write_text(json.dumps(document), encoding="utf-8")
        return json.dumps(document)

    def words(self) -> dict[str, Any]:
        """What the task of their DAG is given."""
        about = [self.workload.to_json(), "hdfs", str(self.folders.work)]
        return {"words": about, "served": self.system == SERVED}

    def land(self, number: int, say: Say) -> None:
        """Let an epoch's files appear."""
        (source,) = input_of(self.workload, range(number, number + 1), self._inputs, say)[-1:]
        staged = self.folders.work / f".epoch-{number}"
        link_files(source, staged)
        staged.rename(self.folders.epoch(number))
        self._landed.append(source)

    def check(self, name: str) -> None:
        """Compare what is published with the answer. Raises WrongResult."""
        Answer(self.workload, self._landed).check(name, self._result_sql(name))

    def _result_sql(self, name: str) -> str:
        if self.system != OURS:
            theirs = Streaming("hdfs", fresh=True)
            theirs.prepare(self.workload, self.folders)
            return theirs.result_sql()
        from milepost.api import JobMaster, load_job

        published = self.folders.work / "published.parquet"
        pq.write_table(JobMaster(load_job(str(self.folders.work / "bench.yaml"))).reports.read("result"), published)
        return f"SELECT {', '.join(self.workload.result_columns)} FROM read_parquet('{published}')"


def ratios_of(record: dict[str, Any]) -> dict[str, float]:
    """By size: how often ours fits into the better of theirs, the median over the rounds."""
    runs = record["runs"]
    found = {}
    for size in SIZES:
        ours, *theirs = ([run["wall_s"] for run in runs[f"{system}_{size}"]] for system in SYSTEMS)
        found[size] = median(min(both) / own for own, *both in zip(ours, *theirs, strict=True))
    return found
