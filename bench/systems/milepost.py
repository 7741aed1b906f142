"""Milepost: a long-running session in one process, or `milepost run` in a new process per epoch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.systems.contract import PARALLELISM, Folders, Written, link_files
from bench.workloads import AGGREGATES, DELAY_S, WINDOW_S, Query, Workload

_TYPES = {
    "auction": "int64",
    "bidder": "int64",
    "price": "int64",
    "channel": "string",
    "url": "string",
    "event_time": "timestamp[us, UTC]",
}


def write_spec(
    workload: Workload, folders: Folders, *, parallelism: int = PARALLELISM, conf: dict[str, str] | None = None
) -> Path:
    """Write the job of a workload, and return its file."""
    source: dict[str, Any] = {
        "format": "parquet",
        "path": f"{folders.landing.as_uri()}/**/*.parquet",
        "schema": {name: _TYPES[name] for name in workload.columns},
    }
    operator: dict[str, Any] = {
        "uid": "result",
        "kind": workload.query.value,
        "inputs": ["bids"],
        "key": list(workload.key),
    }
    if workload.query is not Query.DEDUPLICATE:
        operator["aggregates"] = AGGREGATES
    if workload.query is Query.WINDOW:
        source |= {"event_time": "event_time", "watermark_delay": f"{DELAY_S}s"}
        operator |= {"window": {"tumbling": f"{WINDOW_S}s"}, "allowed_lateness": "0s"}
    mode = "upsert" if workload.query is Query.AGGREGATE else "append"
    spec = {
        "name": "bench",
        "storage": folders.checkpoints.as_uri(),
        "sources": {"bids": source},
        "operators": [operator],
        "sinks": [
            {"name": "result", "input": "result", "format": "parquet", "path": folders.output.as_uri(), "mode": mode}
        ],
        "spark": {"master": f"local[{PARALLELISM}]", "parallelism": parallelism, "conf": conf or {}},
    }
    file = folders.work / "bench.yaml"
    file.write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
    return file


class Milepost:
    """Epochs through the JobMaster; with `fresh` each is a new process of the command line."""

    def __init__(self, *, fresh: bool = False) -> None:
        self._fresh = fresh
        self._document: dict[str, Any] = {}

    def prepare(self, workload: Workload, folders: Folders) -> None:
        self._workload, self._folders = workload, folders
        self._spec = write_spec(workload, folders)
        self._output = Written(folders.output, lambda path: path.suffix == ".parquet")
        self._all = Written(folders.work, lambda path: folders.landing not in path.parents)
        os.environ["MILEPOST_CACHE_DIR"] = str(folders.work.with_name(f"{folders.work.name}-cache"))
        if self._fresh:
            return
        from pipeline.config.load import load_job
        from pipeline.jobmaster import JobMaster
        from pipeline.spark.runner import SparkEpochRunner

        self._master = JobMaster(load_job(str(self._spec)))
        self._runner = SparkEpochRunner()

    def stage(self, source: Path, target: Path) -> None:
        link_files(source, target)

    def epoch(self, number: int) -> None:
        if self._fresh:
            self._document = self._command("run", "--json")
            return
        from pipeline.sessions import Session

        self._document = self._master.run(Session.cli(), self._runner)

    def figures(self, number: int) -> dict[str, Any]:
        document = self._document
        if "checkpoint_id" not in document:
            return {"status": document["status"]}
        return {
            "state_bytes": document["checkpointed_bytes"],
            "output_bytes": self._output.new_bytes(),
            "all_bytes": self._all.new_bytes(),
            "duration_ms": document["duration_ms"],
            "sync_ms": document["sync_ms"],
            "async_ms": document["async_ms"],
            "phases": document.get("phases"),
        }

    def result_sql(self) -> str:
        file = self._folders.work / "published.parquet"
        file.unlink(missing_ok=True)
        self._command("read", "result", "--format", "parquet", "--output", str(file))
        return f"SELECT {', '.join(self._workload.result_columns)} FROM read_parquet('{file}')"

    def versions(self) -> dict[str, str]:
        import pyarrow
        import pyspark

        import pipeline

        return {"milepost": pipeline.__version__, "pyspark": pyspark.__version__, "pyarrow": pyarrow.__version__}

    def close(self) -> None:
        if not self._fresh:
            from pyspark import SparkContext

            if SparkContext._active_spark_context is not None:
                SparkContext._active_spark_context.stop()

    def _command(self, name: str, *words: str) -> dict[str, Any]:
        """Run `milepost NAME bench.yaml …`; return its document's data, {} when it prints none."""
        command = [sys.executable, "-m", "pipeline", name, str(self._spec), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(
                f"milepost {name} ended with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"
            )
        return json.loads(done.stdout)["data"] if "--json" in words else {}
